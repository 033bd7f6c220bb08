"""The backend contract: something that compiles a segment of a graph once and runs it many times."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pumice.graph.shape import N_OUTPUTS, N_SEQS, N_TOKENS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pumice.graph import KVState, MemoryPlan, Node, Segment, Sizes, State, Weight

    Int32Array = NDArray[np.int32]
    Float32Array = NDArray[np.float32]
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
class Limits:
    """The largest step a program must be able to run, and the size of the memory that outlives steps."""

    n_ctx: int  # positions one sequence may have
    n_batch: int  # tokens in one step
    n_outputs: int  # rows of logits in one step
    n_seqs: int  # sequences in one step, each with a slot of recurrent state
    block_size: int  # positions in one block of the KV cache
    n_blocks: Mapping[int, int]  # attention window (0: none) -> blocks in the cache of its layers
    kv_type: str  # one of KV_TYPES
    more_sizes: Mapping[str, int] = field(default_factory=dict)  # the largest of each that the architecture named
    n_checkpoints: int = 0  # further slots of recurrent state, for copies

    @property
    def n_slots(self) -> int:
        """Slots of recurrent state: one for each sequence of a step, then those for copies."""
        return self.n_seqs + self.n_checkpoints

    @property
    def sizes(self) -> Sizes:
        """The largest number that each name of a shape can have."""
        return {N_TOKENS: self.n_batch, N_OUTPUTS: self.n_outputs, N_SEQS: self.n_seqs, **self.more_sizes}

    def can_hold(self, state: KVState) -> bool:
        """Whether the cache's type can keep these keys and values: rows of all heads must be whole blocks."""
        from pumice.gguf import KV_TYPES, block_size

        return all(
            state.n_head_kv * dim % block_size(KV_TYPES[self.kv_type]) == 0 for dim in (state.k_dim, state.v_dim)
        )

    def state_bytes(self, state: State) -> int:
        """Bytes of a cache whose rows lie one behind the other, or of a float32 array for each slot."""
        from pumice.gguf import KV_TYPES, row_bytes
        from pumice.graph import KVState, RecurrentState

        if isinstance(state, RecurrentState):
            return 4 * self.n_slots * math.prod(state.shape)
        assert isinstance(state, KVState), f"{state} is no memory that is known"
        n_cells, type = self.n_blocks[state.window] * self.block_size, KV_TYPES[self.kv_type]
        return n_cells * sum(row_bytes(type, state.n_head_kv * dim) for dim in (state.k_dim, state.v_dim))


@dataclass
class Batch:
    """What one step computes: new tokens of several sequences, each sequence's tokens in a row.

    Position ``p`` of sequence ``s`` is kept in cell ``p % block_size`` of block
    ``block_tables[window][s, p // block_size]``. Entries that no token of the step can attend to are -1.
    """

    tokens: Int32Array  # [n_tokens]
    positions: Int32Array  # [n_tokens]
    output_ids: Int32Array  # [n_outputs] rows of the batch whose logits are wanted
    seq_starts: Int32Array  # [n_seqs + 1] first row of each sequence, then n_tokens
    slots: Int32Array  # [n_seqs] slot of each sequence's recurrent state
    block_tables: Mapping[int, Int32Array]  # attention window -> [n_seqs, blocks of the longest sequence]
    inputs: Mapping[str, Array] = field(default_factory=dict)  # what further inputs the graph has, by name
    more_sizes: Mapping[str, int] = field(default_factory=dict)  # numbers of the names in their shapes
    memory: Memory | None = None  # what another graph stored for each sequence

    @property
    def sizes(self) -> Sizes:
        """The number that each name of a shape has in this step."""
        n_outputs, n_seqs = len(self.output_ids), len(self.slots)
        return {N_TOKENS: len(self.positions), N_OUTPUTS: n_outputs, N_SEQS: n_seqs, **self.more_sizes}


@dataclass
class Memory:
    """For each sequence of a step the keys and values that ``kv_store`` kept in another graph: all are seen."""

    lengths: Int32Array  # [n_seqs] positions
    block_tables: Int32Array  # [n_seqs, blocks of the longest], as of a batch


@dataclass(frozen=True)
class Pick:
    """How a program picks one of the highest logits as a sequence's next token.

    Of the ``top_k`` highest, in descending order, equal ones by token id, stay the fewest that together have the
    probability ``top_p``, and of those the ones with at least ``min_p`` times the highest probability. Divided by
    ``temperature``, their softmax is summed up; the first sum above a given number from [0, 1) is that of the token.
    With a ``temperature`` of 0 it is the highest.

    Before all that logits are adjusted: ``biases`` are added to those of single tokens. Then the logit of a token that
    occurred ``count`` times in the last ``last_n`` is divided by ``repeat_penalty`` where it is above 0, else
    multiplied, and loses ``count * frequency_penalty + presence_penalty``. Where it is ``restricted`` each token has a
    ``Restriction``, and last come its biases and its mask.

    ``exact``: that is all that is to be done, so the token picked is the token. Else somebody looks at it again.
    """

    top_k: int
    top_p: float = 1.0
    min_p: float = 0.0
    temperature: float = 1.0
    biases: tuple[tuple[int, float], ...] = ()
    last_n: int = 0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    restricted: bool = False
    exact: bool = True

    @property
    def adjusts(self) -> bool:
        """Whether any logit is adjusted."""
        return bool(self.biases) or self.last_n > 0 or self.restricted

    @property
    def only_adjusts(self) -> bool:
        """Whether nothing is done to the ``top_k`` highest but to pick one."""
        return (self.top_p, self.min_p, self.temperature) == (1.0, 0.0, 1.0)

    def unadjusted(self) -> Pick:
        """The same without adjusting: a guess, where there is something to adjust."""
        return Pick(self.top_k, self.top_p, self.min_p, self.temperature, exact=self.exact and not self.adjusts)


@dataclass(frozen=True)
class Restriction:
    """What holds for a sequence's next token alone, and is known only when the one before it is.

    Logits of tokens that are not in the ``mask``, uint32 ``[ceil(n_vocab / 32)]``, a bit a token, become -inf; None:
    all may come. ``biases`` are added to those of single tokens, each of them once.
    """

    mask: NDArray[np.uint32] | None = None
    biases: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True)
class Raw:
    """Logits as the model gave them, before anything was adjusted."""

    ids: Int32Array  # [n_steps, n_seqs, n_raw], of the highest, in descending order, equal ones by token id
    logits: Float32Array  # [n_steps, n_seqs, n_raw]
    picked: Float32Array  # [n_steps, n_seqs], of the token that was picked
    totals: Float32Array  # [n_steps, n_seqs], log(sum(exp(logits))) of the whole vocabulary


@dataclass(frozen=True)
class Ahead:
    """What several steps in a row gave: at each, the highest logits of each sequence and the token picked of them.

    Logits, adjusted as the pick says, descend, equal ones by token id; one that is NaN comes first.
    """

    ids: Int32Array  # [n_steps, n_seqs, n_best]
    logits: Float32Array  # [n_steps, n_seqs, n_best]
    picked: Int32Array  # [n_steps, n_seqs]
    raw: Raw | None = None  # where it was asked for

    def part(self, n_seqs: int, n_best: int, n_raw: int) -> Ahead:
        """Of the first sequences, with so many of the best."""
        raw = self.raw and Raw(
            self.raw.ids[:, :n_seqs, :n_raw],
            self.raw.logits[:, :n_seqs, :n_raw],
            self.raw.picked[:, :n_seqs],
            self.raw.totals[:, :n_seqs],
        )
        return Ahead(self.ids[:, :n_seqs, :n_best], self.logits[:, :n_seqs, :n_best], self.picked[:, :n_seqs], raw)


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

    def run_ahead(
        self,
        batch: Batch,
        picks: Sequence[Pick],
        numbers: Float32Array,
        n_best: int,
        pasts: Sequence[Sequence[int]] = (),
        n_raw: int = 0,
        restrictions: Sequence[Restriction] = (),
        inputs: Mapping[str, Array] | None = None,
    ) -> Ahead:
        """Generate: each step after the first computes the tokens that the one before picked, a position further on.

        Args:
            batch: of the first step; one token of each sequence, and the output is wanted for all of them. The block
                tables reach as far as the last step. If there is only one step, and the program ``decides``, sequences
                may have any number of tokens, and what is said of sequences here holds for the output rows.
            picks: for each sequence; ``top_k`` is at most ``max_best``.
            numbers: float32 [n_steps, n_seqs], from [0, 1): what ``picks`` draw with. ``n_steps`` is a power of two.
            n_best: candidates wanted, at most ``max_best`` and the size of the vocabulary.
            pasts: where a pick adjusts, for each sequence the tokens that it looks back at, the latest last.
            n_raw: highest logits wanted as the model gave them, at most as ``n_best``; 0: no ``raw``. Asked only of
                programs that ``decide``, as is what follows.
            restrictions: where a pick is restricted, of each sequence; ``n_steps`` is 1 then.
            inputs: as of ``run``, where ``max_steps`` is 1.
        """
        raise NotImplementedError

    def prepare_ahead(
        self,
        batch: Batch,
        picks: Sequence[Pick],
        numbers: Float32Array,
        n_best: int,
        pasts: Sequence[Sequence[int]] = (),
        n_raw: int = 0,
        restrictions: Sequence[Restriction] = (),
    ) -> Callable[[Mapping[str, Array]], Ahead]:
        """``prepare`` a ``run_ahead``; what is given waits for the result."""
        return lambda inputs: self.run_ahead(batch, picks, numbers, n_best, pasts, n_raw, restrictions, inputs)

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

    def submit_ahead(
        self,
        batch: Batch,
        picks: Sequence[Pick],
        numbers: Float32Array,
        n_best: int,
        pasts: Sequence[Sequence[int]] = (),
        n_raw: int = 0,
        follows: bool = False,
    ) -> Callable[[], Ahead]:
        """Begin to ``run_ahead``, and give what waits for the result, until which it may be asked once more.

        With ``follows`` the steps go on behind those that were submitted before, for the same sequences with the same
        picks, from the tokens picked there: those of ``batch`` and ``pasts`` are not looked at.
        """
        raise NotImplementedError

    def submit_layers(
        self,
        batch: Batch,
        picks: Sequence[Pick],
        numbers: Float32Array,
        n_best: int,
        pasts: Sequence[Sequence[int]] = (),
        n_raw: int = 0,
        follows: bool = False,
    ) -> Callable[[Sequence[Restriction]], Callable[[], Ahead]]:
        """As ``submit_ahead``, one step whose picks are restricted: begin it, and give what takes the restrictions.

        They may be found while it computes. Only behind them is the token picked.
        """
        raise NotImplementedError

    def steps_ahead(
        self,
        batch: Batch,
        picks: Sequence[Pick],
        numbers: Float32Array,
        n_best: int,
        pasts: Sequence[Sequence[int]] = (),
        n_raw: int = 0,
        restrictions: Sequence[Restriction] = (),
    ) -> Iterator[Ahead]:
        """``run_ahead`` in parts, one behind the other: while one is looked at, the next may be computed already."""
        yield self.run_ahead(batch, picks, numbers, n_best, pasts, n_raw, restrictions)

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
    def devices(cls) -> list[DeviceInfo]:
        """The devices it could run on; called only where ``unavailable`` gives None."""
        return []

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
