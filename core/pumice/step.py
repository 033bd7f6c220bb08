"""A step: what programs are asked to compute, at most, and while it is on its way."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pumice.graph.shape import N_OUTPUTS, N_SEQS, N_TOKENS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pumice.graph import KVState, Sizes, State
    from pumice.pick import Ahead, Ask, Restriction

    Int32Array = NDArray[np.int32]
    Array = NDArray[Any]


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


@dataclass(eq=False, slots=True)
class Step:
    """What a program is asked to do at once: to compute a batch, or to go on with the tokens that it picks itself.

    Attributes:
        batch: rows to compute, and in ``output_ids`` those that are wanted. Of several steps it is the first; its block
            tables reach as far as the last.
        inputs: arrays by name for each of the segment's ``inputs``, of the tensor's dtype and concrete shape.
        ask: how tokens are picked on the device, and in how many steps in a row; None: the outputs are wanted. Several
            steps have one token of each sequence, and wanted are the outputs of all of them. One step may have any
            number of tokens where the program ``decides``; what is said of sequences holds for the output rows.
        behind: a step that was submitted before, of the same sequences with the same picks: this one goes on from the
            tokens picked there, and neither tokens of the batch nor ``pasts`` are looked at.
        waits: the inputs come through ``Pending.begin``, and with them the tokens, where the batch has none yet.
    """

    batch: Batch
    inputs: Mapping[str, Array] = field(default_factory=dict)
    ask: Ask | None = None
    behind: Pending | None = None
    waits: bool = False

    def given(self, inputs: Mapping[str, Array]) -> Step:
        """The same step with the inputs that it waited for."""
        batch = replace(self.batch, tokens=inputs.get("tokens", self.batch.tokens))
        return Step(batch, inputs, self.ask, self.behind)


class Pending:
    """A step on its way: it takes what was not known when it was submitted, and waits for what it gives.

    Results are gone when the program begins another step, but for one that is ``behind`` this.
    """

    def begin(self, inputs: Mapping[str, Array]) -> None:
        """Bring the inputs of a step that ``waits`` for them."""
        raise NotImplementedError

    def restrict(self, restrictions: Sequence[Restriction]) -> None:
        """Bring the restrictions of a step whose picks are restricted, and whose ``Ask`` has none.

        They may be found while the layers compute. Only behind them are tokens picked.
        """
        raise NotImplementedError

    def outputs(self) -> Mapping[str, Array]:
        """Wait for a step without ``ask``: host arrays by name for each of the segment's ``outputs``."""
        raise NotImplementedError

    def tokens(self) -> Iterator[Ahead]:
        """Wait for a step with ``ask``, perhaps in parts: while one is looked at, the next may be computed already."""
        raise NotImplementedError


@dataclass
class Memory:
    """For each sequence of a step the keys and values that ``kv_store`` kept in another graph: all are seen."""

    lengths: Int32Array  # [n_seqs] positions
    block_tables: Int32Array  # [n_seqs, blocks of the longest], as of a batch
