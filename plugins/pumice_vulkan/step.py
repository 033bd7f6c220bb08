"""What changes from step to step, in one block of words that every kernel can read (binding 0)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_OUTPUTS, N_SEQS, N_TOKENS, Batch, KVState, Limits, Node, Pick, Sizes

SIZE_WORDS = {N_TOKENS: 0, N_OUTPUTS: 1, N_SEQS: 2}
"""Where the number of a shape's name lies."""

HEADER = 16
MAX_STEPS = 16  # that the device takes in a row


def bucket_sizes(limits: Limits, n_tokens: int, n_outputs: int) -> Sizes:
    """The largest numbers of steps with at most so many tokens and output rows."""
    return {N_TOKENS: n_tokens, N_OUTPUTS: n_outputs, N_SEQS: min(n_tokens, limits.n_seqs)}


def has_known_sizes(node: Node) -> bool:
    """Whether the numbers of rows of a node's values are all among those that a step brings."""
    shapes = [tensor.shape for tensor in (*node.operands(), node.output)]
    return all(shape[0] in SIZE_WORDS for shape in shapes if shape and isinstance(shape[0], str))


def reads_memory(node: Node) -> bool:
    """Whether it attends to what another graph stored."""
    return node.op == "attention" and isinstance(node.state, KVState) and node.state.is_memory


class StepLayout:
    """Where each field lies, in words. Of every field there is room for the largest step.

    ``sequences`` names the sequence of each token; the table of a window is ``[n_seqs, table_width]``. ``picks`` has
    the four fields of a Pick for each sequence, ``numbers`` is ``[MAX_STEPS, limits.n_seqs]``.
    """

    def __init__(self, limits: Limits, *, reads_memory: bool = False) -> None:
        self._size = HEADER
        self._written: dict[int, object] = {}  # offset of a field -> what it was made from
        self.table_width = -(-limits.n_ctx // limits.block_size) + 1
        self.tokens = self._field(limits.n_batch)
        self.positions = self._field(limits.n_batch)
        self.sequences = self._field(limits.n_batch)
        self.output_ids = self._field(limits.n_outputs)
        self.seq_starts = self._field(limits.n_seqs + 1)
        self.slots = self._field(limits.n_seqs)
        self.picks = self._field(4 * limits.n_seqs)
        self.numbers = self._field(MAX_STEPS * limits.n_seqs)
        self.max_seqs = limits.n_seqs
        self.tables = {window: self._field(limits.n_seqs * self.table_width) for window in sorted(limits.n_blocks)}
        self.memory_table = self._field(limits.n_seqs * self.table_width if reads_memory else 0)
        self.memory_lengths = self._field(limits.n_seqs if reads_memory else 0)
        self._reads_memory = reads_memory

    @property
    def n_words(self) -> int:
        return self._size

    def write(self, words: NDArray[np.int32], batch: Batch) -> None:
        """Write a step into memory that is always the same: arrays that are those of the step before are there."""
        n_seqs, sizes = len(batch.slots), batch.sizes
        for name, word in SIZE_WORDS.items():
            words[word] = sizes[name]
        fields = {
            self.tokens: batch.tokens,
            self.positions: batch.positions,
            self.output_ids: batch.output_ids,
            self.seq_starts: batch.seq_starts,
            self.slots: batch.slots,
        }
        for offset, values in fields.items():
            if self._is_new(offset, values):
                words[offset : offset + len(values)] = values
        if self._is_new(self.sequences, batch.seq_starts):
            lengths = batch.seq_starts[1:] - batch.seq_starts[:-1]
            words[self.sequences :][: lengths.sum()] = np.repeat(np.arange(n_seqs, dtype=np.int32), lengths)
        for window, table in batch.block_tables.items():
            if window in self.tables and self._is_new(self.tables[window], table):
                self._write_table(words, self.tables[window], table)
        if self._reads_memory:
            assert batch.memory is not None
            words[self.memory_lengths :][:n_seqs] = batch.memory.lengths
            self._write_table(words, self.memory_table, batch.memory.block_tables)

    def _write_table(self, words: NDArray[np.int32], at: int, table: NDArray[np.int32]) -> None:
        n_seqs = len(table)
        room = words[at:][: n_seqs * self.table_width].reshape(n_seqs, self.table_width)
        room[:, : table.shape[1]] = table[:, : self.table_width]

    def _is_new(self, offset: int, values: object) -> bool:
        known = self._written.get(offset) is values
        self._written[offset] = values
        return not known

    def write_picks(self, words: NDArray[np.int32], picks: Sequence[Pick], numbers: NDArray[np.float32]) -> None:
        if self._is_new(self.picks, picks):
            fields = [(pick.top_k, pick.top_p, pick.min_p, pick.temperature) for pick in picks]
            room = words[self.picks :][: 4 * len(picks)].reshape(-1, 4)
            room[:, 0] = [top_k for top_k, *_ in fields]
            room[:, 1:].view(np.float32)[:] = [floats for _, *floats in fields]
        n_steps, n_seqs = numbers.shape
        table = words[self.numbers :][: n_steps * self.max_seqs].reshape(n_steps, -1)
        table.view(np.float32)[:, :n_seqs] = numbers

    def _field(self, n_words: int) -> int:
        offset = self._size
        self._size += -(-n_words // 16) * 16
        return offset
