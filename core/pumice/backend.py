"""The backend contract: something that compiles a segment of a graph once and runs it many times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pumice.sandbox import Access

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pumice.graph import MemoryPlan, Node, Segment, State, Weight
    from pumice.pick import Ahead, Ask, Restriction
    from pumice.step import Batch, Limits

    Array = NDArray[Any]
    Pending = Callable[[], Mapping[str, Array]]  # waits for what a program computes, and gives it


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


class Program(ABC):
    """A compiled segment. All its memory is allocated when it is made; ``run`` allocates none."""

    @abstractmethod
    def run(self, inputs: Mapping[str, Array], batch: Batch) -> Mapping[str, Array]:
        """Compute the segment for one batch.

        ``inputs`` and the result map names of the segment's ``inputs`` and ``outputs`` to host arrays of
        the tensor's dtype and concrete shape. A result is valid until the next ``run``.
        """

    def submit(self, inputs: Mapping[str, Array], batch: Batch) -> Pending:
        """Begin to ``run``, and give what waits for the result, which is gone when the program is asked for another.

        Where it does not wait itself, several devices work at the same time.
        """
        results = self.run(inputs, batch)
        return lambda: results

    @property
    def n_in_flight(self) -> int:
        """Steps of different sequences that are worth being on their way at once: each is at another device."""
        return 1

    @property
    def lost(self) -> bool:
        """Whether the last call failed, and took steps with it that had been let go: nobody waits for their results."""
        return False

    def finish(self) -> None:  # noqa: B027 - most let nothing go
        """Wait for the steps that were let go."""

    def prepare(self, batch: Batch) -> Callable[[Mapping[str, Array]], Pending]:
        """Do of ``submit`` what can be done before its inputs are known, and give what does the rest.

        ``tokens`` of the batch may be wrong: those among the inputs count. Whatever else the program is asked for
        before takes the place of what was prepared.
        """
        return lambda inputs: self.submit(inputs, replace(batch, tokens=inputs.get("tokens", batch.tokens)))

    @property
    def max_steps(self) -> int:
        """The most steps of one ``run_ahead``. 0: it has none, as one whose segment does not give the logits.

        1: it has no more, as one whose segment takes what other programs compute.
        """
        return 0

    @property
    def max_best(self) -> int:
        """The most candidates that ``run_ahead`` gives for a token."""
        return 0

    def run_ahead(self, batch: Batch, ask: Ask, inputs: Mapping[str, Array] | None = None) -> Ahead:
        """Generate: each step after the first computes the tokens that the one before picked, a position further on.

        Args:
            batch: of the first step; one token of each sequence, and the output is wanted for all of them. The block
                tables reach as far as the last step. If there is only one step, and the program ``decides``, sequences
                may have any number of tokens, and what is said of sequences here holds for the output rows.
            inputs: as of ``run``, where ``max_steps`` is 1.
        """
        raise NotImplementedError

    def prepare_ahead(self, batch: Batch, ask: Ask) -> Callable[[Mapping[str, Array]], Ahead]:
        """``prepare`` a ``run_ahead``; what is given waits for the result."""
        return lambda inputs: self.run_ahead(batch, ask, inputs)

    @property
    def decides(self) -> bool:
        """Whether what it picks by an exact ``Pick`` is the token, so that nobody looks at the candidates again."""
        return False

    @property
    def max_adjustments(self) -> tuple[int, int]:
        """The most ``biases`` and the largest ``last_n`` of a pick."""
        return 0, 0

    @property
    def max_added(self) -> int:
        """The most ``biases`` of a ``Restriction``."""
        return 0

    @property
    def follows(self) -> bool:
        """Whether it has ``submit_ahead``."""
        return False

    def submit_ahead(self, batch: Batch, ask: Ask, follows: bool = False) -> Callable[[], Ahead]:
        """Begin to ``run_ahead``, and give what waits for the result, until which it may be asked once more.

        With ``follows`` the steps go on behind those that were submitted before, for the same sequences with the same
        picks, from the tokens picked there: those of ``batch`` and the ``pasts`` are not looked at.
        """
        raise NotImplementedError

    def submit_layers(
        self, batch: Batch, ask: Ask, follows: bool = False
    ) -> Callable[[Sequence[Restriction]], Callable[[], Ahead]]:
        """As ``submit_ahead``, one step whose picks are restricted: begin it, and give what takes the restrictions.

        They may be found while it computes. Only behind them is the token picked.
        """
        raise NotImplementedError

    def steps_ahead(self, batch: Batch, ask: Ask) -> Iterator[Ahead]:
        """``run_ahead`` in parts, one behind the other: while one is looked at, the next may be computed already."""
        yield self.run_ahead(batch, ask)

    @property
    def copies_slots(self) -> bool:
        """Whether it has ``copy_slots``, and recurrent states for all of ``limits.n_slots``."""
        return False

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
