"""Steps: the input of programs, its limits, and pending steps."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pumice.graph.shape import N_OUTPUTS, N_SEQS, N_TOKENS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pumice.backend.pick import Ahead, Ask, Restriction
    from pumice.graph import KVState, Sizes, State

    Int32Array = NDArray[np.int32]
    Array = NDArray[Any]


class Taps(Protocol):
    """Functions that see rows of a sequence inside a step.

    Attributes:
        sites: names of the places where they do.
    """

    @property
    def sites(self) -> Collection[str]: ...

    def apply(self, site: str, rows: NDArray[np.float32], positions: Int32Array) -> NDArray[np.float32]:
        """Return the rows that go on in place of ``rows [n, ...]`` of tokens at ``positions [n]``. Raises nothing."""


class TappedRows(NamedTuple):
    """The rows of a batch, from ``first`` to before ``end``, that functions see."""

    first: int
    end: int
    taps: Taps


@dataclass(frozen=True)
class Limits:
    """The largest step of a program, and the size of the caches that outlive steps."""

    n_ctx: int  # maximum positions of a sequence
    n_batch: int  # maximum tokens in a step
    n_outputs: int  # maximum rows of logits in a step
    n_seqs: int  # maximum sequences in a step, each with a slot of recurrent state
    block_size: int  # positions in a block of the KV cache
    n_blocks: Mapping[int, int]  # attention window (0: none) -> blocks in the cache of its layers
    kv_type: str  # one of KV_TYPES
    more_sizes: Mapping[str, int] = field(default_factory=dict)  # maxima of the sizes that the architecture names
    n_checkpoints: int = 0  # further slots of recurrent state, for copies
    in_place: str = ""  # pattern of the names of weights in host memory that GPUs read there; empty: none

    @property
    def n_cache(self) -> int:
        """Number of positions that the KV cache holds, of all sequences together; 0 without a cache."""
        return max(self.n_blocks.values(), default=0) * self.block_size

    @property
    def n_slots(self) -> int:
        """Number of slots of recurrent state: one for each sequence of a step, then those for copies."""
        return self.n_seqs + self.n_checkpoints

    @property
    def sizes(self) -> Sizes:
        """Maximum of each named size of shapes."""
        return {N_TOKENS: self.n_batch, N_OUTPUTS: self.n_outputs, N_SEQS: self.n_seqs, **self.more_sizes}

    def is_in_place(self, name: str) -> bool:
        """Return True if GPUs read the weight of this name in host memory."""
        return bool(self.in_place) and re.search(self.in_place, name) is not None

    def can_hold(self, state: KVState) -> bool:
        """Return True if the cache type can store these keys and values: rows of all heads must be whole blocks."""
        from pumice.gguf import KV_TYPES, block_size

        return all(
            state.n_head_kv * dim % block_size(KV_TYPES[self.kv_type]) == 0 for dim in (state.k_dim, state.v_dim)
        )

    def state_bytes(self, state: State) -> int:
        """Return the bytes of a contiguous cache, or of a float32 array per slot for a recurrent state."""
        from pumice.gguf import KV_TYPES, row_bytes
        from pumice.graph import KVState, RecurrentState

        if isinstance(state, RecurrentState):
            return 4 * self.n_slots * math.prod(state.shape)
        assert isinstance(state, KVState), f"unknown kind of state: {state}"
        n_cells, type = self.n_blocks[state.window] * self.block_size, KV_TYPES[self.kv_type]
        return n_cells * sum(row_bytes(type, state.n_head_kv * dim) for dim in (state.k_dim, state.v_dim))


LATEST = -1
"""In place of a token: the latest one of its sequence's slot. In place of an output row: the row of that token."""


def draft_of_slot(index: int) -> int:
    """Return what stands in a batch in place of a token for a draft of its sequence's slot."""
    return -2 - index


@dataclass(frozen=True)
class Passed:
    """An input of a step: the first rows of an output of the latest step of another program on the device.

    Attributes:
        program: the ``Program``, of the same backend, which has ``registers``, too.
        output: name of the tensor that is its output.
        shape: shape of the input.
    """

    program: object
    output: str
    shape: tuple[int, ...]


@dataclass
class Batch:
    """The tokens of a step: new tokens of several sequences, consecutive for each sequence.

    Position ``p`` of sequence ``s`` is stored in cell ``p % block_size`` of block
    ``block_tables[window][s, p // block_size]``. Entries that no token of the step can attend to are -1.

    A program with ``registers`` keeps for each slot, in its memory, the latest token that a step picked, its position,
    and drafts: the tokens that the latest step with drafts picked in each row, or those of ``Ask.first_draft``. Steps
    run in order, so a step may take what one before it, still pending, will write. The programs of a device share them.
    """

    tokens: Int32Array  # [n_tokens]; negative: LATEST or ``draft_of_slot``
    positions: Int32Array  # [n_tokens]
    output_ids: Int32Array  # [n_outputs] rows of the batch whose logits to compute
    seq_starts: Int32Array  # [n_seqs + 1] first row of each sequence, then n_tokens
    slots: Int32Array  # [n_seqs] slot of each sequence's recurrent state
    block_tables: Mapping[int, Int32Array]  # attention window -> [n_seqs, blocks of the longest sequence]
    inputs: Mapping[str, Array] = field(default_factory=dict)  # further inputs of the graph by name
    more_sizes: Mapping[str, int] = field(default_factory=dict)  # values of the named sizes in their shapes
    memory: Memory | None = None  # keys and values that another graph stored for each sequence
    exact: bool = False  # results depend on nothing but this step, not on what a program has prepared
    together: bool = False  # its tokens are of one image, and attend to each other in both directions
    relative: bool = False  # positions count from that of each slot's latest token, which the host does not know
    passed: Mapping[str, Passed] = field(default_factory=dict)  # further inputs that steps of other programs compute
    taps: Sequence[TappedRows] = ()  # rows that functions see
    adapters: Sequence[Sequence[tuple[str, float]]] = ()  # [n_seqs] keys and scales of each; empty if none has any

    @property
    def takes_from_slots(self) -> bool:
        """True if the step takes tokens, positions or output rows from the registers of its slots."""
        return self.relative or (len(self.tokens) > 0 and int(self.tokens.min()) < 0)

    @property
    def sizes(self) -> Sizes:
        """Value of each named size of shapes in this step."""
        n_outputs, n_seqs = len(self.output_ids), len(self.slots)
        return {N_TOKENS: len(self.positions), N_OUTPUTS: n_outputs, N_SEQS: n_seqs, **self.more_sizes}


@dataclass(eq=False, slots=True)
class Step:
    """The unit of submission: a batch to compute, or consecutive steps whose tokens the program picks itself.

    Attributes:
        batch: rows to compute, with the rows to return in ``output_ids``. For several steps, the batch of the first
            one, with block tables that suffice for the last one.
        inputs: arrays by name for each of the segment's ``inputs``, of the tensor's dtype and concrete shape.
        ask: how to pick tokens on the device, and for how many consecutive steps; None: return the outputs. Each of
            several steps has one token per sequence, and an output row for each. A single
            step may have any number of tokens, and the arrays per sequence of ``ask`` refer to output rows.
        waits: True if inputs arrive later through ``Pending.begin``, with the tokens if the batch has none yet.
    """

    batch: Batch
    inputs: Mapping[str, Array] = field(default_factory=dict)
    ask: Ask | None = None
    waits: bool = False

    def given(self, inputs: Mapping[str, Array]) -> Step:
        """Return a copy of the step with the inputs that it waited for."""
        tokens = inputs.get("tokens", self.batch.tokens)
        batch = self.batch if tokens is self.batch.tokens else replace(self.batch, tokens=tokens)
        return Step(batch, inputs, self.ask)


class Pending:
    """A submitted step: accepts inputs that were missing at submission, and waits for results.

    Results are valid until the program begins another step, other than one that takes from registers.
    """

    def begin(self, inputs: Mapping[str, Array]) -> None:
        """Provide the inputs of a step that ``waits`` for them."""
        raise NotImplementedError

    def restrict(self, restrictions: Sequence[Restriction]) -> None:
        """Provide the restrictions of a step whose picks are restricted, and whose ``Ask`` has none.

        The host computes them while the layers run, and tokens are picked afterwards: a mask takes the host up to
        milliseconds, during which the device would wait otherwise.
        """
        raise NotImplementedError

    def outputs(self) -> Mapping[str, Array]:
        """Wait for a step, and return host arrays by name for each of the segment's ``outputs``.

        With ``ask`` only those of a single step, or of steps with drafted tokens; logits then have any values.
        """
        raise NotImplementedError

    def tokens(self) -> Iterator[Ahead]:
        """Wait for a step with ``ask``, and yield its results in one or more parts as they become available."""
        raise NotImplementedError


@dataclass
class Memory:
    """Keys and values that ``kv_store`` stored in another graph, for each sequence; attention covers all of them."""

    lengths: Int32Array  # [n_seqs] positions
    block_tables: Int32Array  # [n_seqs, blocks of the longest sequence], as in ``Batch``
