"""The backend contract: something that compiles a segment of a graph once and runs it many times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pumice.sandbox import Access
from pumice.step import Pending

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pumice.graph import MemoryPlan, Node, Segment, State, Weight
    from pumice.step import Limits, Step

    Array = NDArray[Any]


@dataclass(frozen=True)
class DeviceInfo:
    """One line of ``pumice devices``."""

    name: str
    kind: str  # "cpu" or "gpu"
    memory_bytes: int  # 0: not known
    details: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelTime:
    """Time that a device spent on a kernel, or on several of one name."""

    name: str
    count: int
    microseconds: float


@dataclass(frozen=True)
class Capabilities:
    """What a program can do but compute one step at a time, as the engine sees it; by default nothing.

    Attributes:
        copies_slots: it has ``copy_slots``, and recurrent states for all of ``limits.n_slots``.
        n_in_flight: steps of different sequences that are worth being on their way at once: each is at another device.
        max_steps: most steps of an ``Ask``. 0: it picks no tokens, as one whose segment does not give the logits. 1: no
            more, as one whose segment takes what other programs compute.
        max_best: most candidates that an ``Ask`` may want for a token.
        decides: what it picks by an exact ``Pick`` is the token, so that nobody looks at the candidates again.
        follows: it takes a step ``behind`` one that is not computed yet, and restrictions after the layers have begun.
        max_biases: most ``biases`` of a ``Pick``.
        max_last_n: largest ``last_n`` of a ``Pick``.
        max_added: most ``biases`` of a ``Restriction``.
    """

    copies_slots: bool = False
    n_in_flight: int = 1
    max_steps: int = 0
    max_best: int = 0
    decides: bool = False
    follows: bool = False
    max_biases: int = 0
    max_last_n: int = 0
    max_added: int = 0


class _Running(Pending):
    """A step of a plain program: computed as soon as its inputs are known."""

    def __init__(self, program: Program, step: Step) -> None:
        self._program = program
        self._step = step
        self._outputs = {} if step.waits else program.run(step)

    def begin(self, inputs: Mapping[str, Array]) -> None:
        self._outputs = self._program.run(self._step.given(inputs))

    def outputs(self) -> Mapping[str, Array]:
        return self._outputs


class Program(ABC):
    """A compiled segment. All its memory is allocated when it is made; ``run`` allocates none.

    A plain program has ``run`` and ``memory``. One that can do more has ``submit``, and ``capabilities`` that say so.
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
        """Begin a step. Where that does not wait, several devices work at the same time."""
        return _Running(self, step)

    @property
    def lost(self) -> bool:
        """Whether the last call failed, and took steps with it that had been let go: nobody waits for their results."""
        return False

    def finish(self) -> None:  # noqa: B027 - most let nothing go
        """Wait for the steps that were let go."""

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy all recurrent states of a slot, as the last step left them, to another, for each pair from and to.

        No slot is in two pairs.
        """
        raise NotImplementedError

    @property
    @abstractmethod
    def memory(self) -> dict[str, int]:
        """Bytes held, by purpose: ``weights``, ``kv_cache``, ``activations``."""

    def profile(self) -> list[KernelTime]:
        """Times of the kernels of the last step, which may be run again for it; empty where they are not known."""
        return []

    def close(self) -> None:
        """Release memory and devices; the program is not run again."""
        return


@dataclass
class NoOptions:
    """For a backend without options."""


class Backend(ABC):
    """A way to compute. One instance serves one loaded model.

    A backend may claim only some operations (``supports``); the rest runs on the next backend in
    line, so a backend is useful as soon as it has ``linear``.
    """

    #: True for a GPU: ``n_gpu_layers`` limits the layers it gets.
    offload: ClassVar[bool] = False
    #: A dataclass whose fields are the keys of the configuration section named after the backend.
    Options: ClassVar[type] = NoOptions

    def __init__(self, options: Any = None) -> None:
        self.options = options if options is not None else self.Options()

    @classmethod
    def unavailable(cls) -> str | None:
        """None if the backend can run on this machine, else one line: why not, and what to install."""
        return None

    @classmethod
    def automatic(cls) -> bool:
        """Whether the setting ``backend: auto`` may take it; its name in ``backend`` always does."""
        return True

    @classmethod
    def devices(cls) -> list[DeviceInfo]:
        """The devices it could run on; called only where ``unavailable`` gives None."""
        return []

    @classmethod
    def access(cls) -> Access:
        """Paths that a confined engine opens for this backend: device nodes, files of drivers, caches.

        What Python imports from is readable anyway, and the folder ``$XDG_CACHE_HOME`` of such a process is writable.
        """
        return Access()

    @abstractmethod
    def supports(self, node: Node, limits: Limits) -> bool:
        """Whether this backend can run ``node``: look at its ``op``, at the ``type`` of its weights, at the cache's."""

    def free_memory(self) -> Sequence[int | None]:
        """Bytes that weights and states may take on each device that it will use; None: no matter how many.

        Of several devices each gets some of the layers, in proportion to its memory; a segment says its ``device``.
        """
        return [None]

    def footprint(self, held: Weight | State, limits: Limits) -> int:
        """Bytes that a weight, or a state, takes on a device: for placing layers, so it may be a little too much."""
        from pumice.graph import State

        return limits.state_bytes(held) if isinstance(held, State) else held.nbytes

    def rewrite(self, segment: Segment) -> Segment:
        """The segment as it will be compiled, for example with fused nodes; its inputs and outputs stay.

        Memory is planned after it, so a value that no node gives any more takes none.
        """
        return segment

    @abstractmethod
    def compile(self, segment: Segment, plan: MemoryPlan, limits: Limits) -> Program:
        """Make ``segment`` ready to run on its device: upload weights, allocate states and ``plan.size`` bytes.

        Raises BackendError, for example when memory runs out.
        """

    def close(self) -> None:
        """Release what programs share; called after they are closed."""
        return
