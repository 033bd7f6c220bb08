"""The backend contract: a backend compiles a segment of a graph once, and the program runs many times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pumice.backend.pick import PickLimits
from pumice.backend.step import Pending, Step
from pumice.sandbox import Access

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pumice.backend.step import Limits
    from pumice.graph import MemoryPlan, Node, Segment, State, Weight

    Array = NDArray[Any]


Fact = str | int | float | bool | Sequence[str]
"""A property of a device in a report."""


@dataclass(frozen=True)
class DeviceInfo:
    """A device, as ``pumice devices`` lists it."""

    name: str
    kind: str  # "cpu" or "gpu"
    memory_bytes: int  # 0: unknown
    details: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelTime:
    """Time that a device spent on all runs of the kernels of one name."""

    name: str
    count: int
    microseconds: float


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """Optional abilities of a program beyond computing one step at a time; none by default.

    Attributes:
        copies_slots: ``copy_slots`` is implemented, and recurrent states exist for all of ``limits.n_slots``.
        invariant: the results of a row are bit-identical for any number of rows in the step.
        n_in_flight: useful number of pending steps of different sequences, each computed by another device.
        max_steps: maximum steps of an ``Ask``; a token picked by an exact ``Pick`` is final. 0: the program picks no
            tokens, for example because its segment does not compute the logits. 1: a single step, for example because
            its segment depends on other programs.
        picks: limits of an ``Ask``.
        registers: tokens of a step may be the latest of their slots (``LATEST``), which a pending step may still pick,
            and restrictions may arrive after its layers began. With ``drafted``, also drafts, positions and inputs may
            be those that steps of this program or others of the device leave (``Batch``).
        drafted: useful values of ``n_drafted`` of an ``Ask``, ascending. Recurrent states after such a step are those
            after the tokens that it gives but the last. Empty: the program verifies no drafts.
        drafted_rows: maximum rows of all sequences in a step with drafts; 0: one more than the last of ``drafted``.
    """

    copies_slots: bool = False
    invariant: bool = False
    n_in_flight: int = 1
    max_steps: int = 0
    picks: PickLimits = field(default_factory=PickLimits)
    registers: bool = False
    drafted: tuple[int, ...] = ()
    drafted_rows: int = 0


@dataclass(frozen=True)
class CacheForm:
    """The bytes of a program's caches that can leave the device, see ``Program.read_blocks``.

    Attributes:
        block_bytes: bytes of a block over all layers, by attention window.
        slot_bytes: bytes of a slot's recurrent states over all layers.
        computed_by: everything that decides the bytes besides model, tokens, type and size of the cache: layout,
            kernels, instruction set, device, driver.
    """

    block_bytes: Mapping[int, int]
    slot_bytes: int
    computed_by: str


class _Running(Pending):
    """A step of a plain program, computed as soon as its inputs are available."""

    def __init__(self, program: Program, step: Step) -> None:
        self._program = program
        self._step = step
        self._outputs = {} if step.waits else program.run(step)

    def begin(self, inputs: Mapping[str, Array]) -> None:
        self._outputs = self._program.run(self._step.given(inputs))

    def outputs(self) -> Mapping[str, Array]:
        return self._outputs


class Program(ABC):
    """A compiled segment. Its constructor allocates all memory; ``run`` allocates none.

    A plain program implements ``run`` and ``memory``. A program with further abilities implements ``submit``, too, and
    declares them in ``capabilities``.
    """

    capabilities: Capabilities = Capabilities()

    @abstractmethod
    def run(self, step: Step) -> Mapping[str, Array]:
        """Compute the segment for ``step.batch``, from ``step.inputs``.

        Returns:
            Host arrays by name for each of the segment's ``outputs``, of the tensor's dtype and concrete shape, valid
            until the next ``run``.
        """

    def submit(self, step: Step) -> Pending:
        """Begin a step and return it as pending. If this does not block, several devices work at the same time."""
        return _Running(self, step)

    @property
    def lost(self) -> bool:
        """True if the last call failed together with released steps, whose results the engine does not wait for."""
        return False

    def finish(self) -> None:  # noqa: B027 - most programs release no steps
        """Wait for the released steps, whose results the engine did not wait for."""

    def wait_until_prepared(self) -> None:  # noqa: B027 - most programs prepare nothing beside their steps
        """Wait until the program has prepared its usual steps, so that no later step waits; called from one thread."""

    def wait_until_settled(self) -> None:
        """Wait until nothing is prepared beside steps any more, so that later steps are as fast as they can be."""
        self.wait_until_prepared()

    def prepare_drafts(self) -> None:  # noqa: B027 - most programs prepare nothing beside their steps
        """Begin to prepare steps with drafted tokens, since requests will draft; it may be called again."""

    @property
    def prepares_drafts(self) -> bool:
        """True while ``prepare_drafts`` goes on beside other steps, which it delays."""
        return False

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy all recurrent states between slots, as the last step left them.

        Args:
            pairs: source and target slots; no slot occurs in two pairs.
        """
        raise NotImplementedError

    @property
    def cache_form(self) -> CacheForm | None:
        """The bytes of all of the segment's states; None if they cannot be read and written."""
        return None

    def read_blocks(self, window: int, blocks: Sequence[int]) -> NDArray[np.uint8]:
        """Return a copy of blocks of an attention window, ``[len(blocks), block_bytes]``, as the last step left them.

        For programs with a ``cache_form``.
        """
        raise NotImplementedError

    def write_blocks(self, window: int, blocks: Sequence[int], data: NDArray[np.uint8]) -> None:
        """Write what ``read_blocks`` returned, ``[len(blocks), block_bytes]``; later steps find it there."""
        raise NotImplementedError

    def read_slots(self, slots: Sequence[int]) -> NDArray[np.uint8]:
        """Return a copy of the recurrent states of slots, ``[len(slots), slot_bytes]``, as the last step left them."""
        raise NotImplementedError

    def write_slots(self, slots: Sequence[int], data: NDArray[np.uint8]) -> None:
        """Write what ``read_slots`` returned, ``[len(slots), slot_bytes]``; later steps find it there."""
        raise NotImplementedError

    @property
    @abstractmethod
    def memory(self) -> dict[str, int]:
        """Allocated bytes by purpose: ``weights``, ``kv_cache``, ``activations``."""

    @property
    def host_weights(self) -> Sequence[NDArray[Any]]:
        """Arrays of host memory that steps read as weights, contiguous."""
        return ()

    def profile(self) -> list[KernelTime]:
        """Return the kernel times of the last step, which may be repeated for the measurement; empty if unsupported."""
        return []

    def close(self) -> None:
        """Release memory and devices. The program is not used afterwards."""
        return


@dataclass
class NoOptions:
    """The options of a backend without options."""


class Backend(ABC):
    """Computes graphs on one kind of device. An instance serves one loaded model.

    A backend may support only some operations (``supports``); other operations run on the next backend in line, so a
    backend is useful as soon as it supports ``linear``.

    Args:
        options: an instance of ``Options``; None: the defaults.
    """

    #: True for GPUs: ``n_gpu_layers`` limits the layers placed on this backend.
    offload: ClassVar[bool] = False
    #: True if programs read weights in host memory, those of ``Limits.in_place``; ``host_footprint`` counts them.
    reads_in_place: ClassVar[bool] = False
    #: Bytes of scratch memory that the programs of a model share on each device, besides weights, states and arenas.
    scratch_bytes: ClassVar[int] = 0
    #: True if the programs of a device that give no logits share an arena: each step ends before another begins.
    shares_arenas: ClassVar[bool] = False
    #: True if programs that share an arena keep their outputs beside it, until they run again.
    keeps_outputs: ClassVar[bool] = False
    #: A dataclass whose fields are the keys of the configuration section named after the backend. If it has
    #: ``batch_invariant``, and it is set, a row has the same result in any step, so no graph is for prompts alone.
    Options: ClassVar[type] = NoOptions

    #: The backend and its plugin in messages, such as ``backend 'cpu' (plugin cpu)``; set when it is made.
    title: str = ""

    def __init__(self, options: Any = None) -> None:
        self.options = options if options is not None else self.Options()

    @classmethod
    def unavailable(cls) -> str | None:
        """Return None if the backend can run on this machine, else one line: the reason, and what to install."""
        return None

    @classmethod
    def automatic(cls) -> bool:
        """Return True if ``backend: auto`` may select the backend; its name in ``backend`` always selects it."""
        return True

    @classmethod
    def devices(cls) -> list[DeviceInfo]:
        """Return the usable devices. Called only if ``unavailable`` returns None."""
        return []

    @classmethod
    def access(cls) -> Access:
        """Return the paths that a confined engine opens for this backend: device nodes, files of drivers, caches.

        Python's import paths are always readable, and the confined process's ``$XDG_CACHE_HOME`` is writable.
        """
        return Access()

    @abstractmethod
    def supports(self, node: Node, limits: Limits) -> bool:
        """Return True if the backend can run ``node``, by its ``op``, the types of its weights, and the cache type."""

    def free_memory(self) -> Sequence[int | None]:
        """Return the bytes available for weights, states and activations on each device in use; None: unlimited.

        Several devices share the layers in proportion to their memory; a segment names its ``device``.
        """
        return [None]

    def shares_host_memory(self) -> bool:
        """Return True if its devices have no memory of their own: integrated GPUs, drivers in software."""
        return False

    def facts(self) -> Mapping[str, Fact]:
        """Return what a report of a fault needs to know of the device in use: limits, features, decisions.

        No identifiers of the machine or its user.
        """
        return {}

    def kernels(self) -> Sequence[str]:
        """Return the kernels that its programs have used so far, with the choices of each, such as sizes of tiles."""
        return ()

    def footprint(self, held: Weight | State, limits: Limits) -> int:
        """Return the bytes of a weight or a state on a device, possibly a slight overestimate. Used to place layers."""
        from pumice.graph import State

        return limits.state_bytes(held) if isinstance(held, State) else held.nbytes

    def host_footprint(self, weight: Weight, limits: Limits) -> int:
        """Return the bytes of a weight in host memory that the device reads there; ``footprint`` leaves them out."""
        return 0

    def rewrite(self, segment: Segment) -> Segment:
        """Return the segment to compile, for example with fused nodes, and with the same inputs and outputs.

        Memory is planned after the rewrite, so a value that no node computes any more takes none.
        """
        return segment

    @abstractmethod
    def compile(self, segment: Segment, plan: MemoryPlan, limits: Limits) -> Program:
        """Compile a segment: upload its weights, and allocate its states and ``plan.size`` bytes.

        Args:
            segment: nodes to run on one device.
            plan: offsets of values in the arena.
            limits: the largest step, and the size of the caches.

        Raises:
            BackendError: for example, memory ran out.
        """

    def close(self) -> None:
        """Release resources shared by programs. Called after the programs were closed."""
        return
