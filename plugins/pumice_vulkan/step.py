"""The step block: data of a step in one buffer of words that every kernel can read (binding 0)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_OUTPUTS, N_SEQS, N_TOKENS
from pumice.plugin.unstable import Batch, KVState, Limits, Node, Pick

SIZE_WORDS = {N_TOKENS: 0, N_OUTPUTS: 1, N_SEQS: 2}
"""Index of the number for each named size; those that an architecture names follow in the header."""

HEADER = 16
ZERO = HEADER - 1
"""Index of a word of the step block that is 0, unless an architecture names many sizes."""
MAX_STEPS = 16  # maximum steps that the device runs in succession
MAX_DRAFTED = 16  # maximum rows of a sequence whose drafts the device verifies, or of up to FEW_DRAFTING
FEW_DRAFTING = MAX_DRAFTED // 2
MANY_DRAFTED = 64  # ... of more sequences
SLOT_WORDS = 4 + MAX_DRAFTED  # registers of a slot: see shaders/registers.glsl
SCRATCH_BYTES = 2**20  # that the programs of a device allocate at first, and grow if they need more
MAX_BIASES = 64  # maximum biases of a sequence's logits
MAX_PAST = 256  # maximum tokens considered by penalties; invocations of shaders/adjust.comp


def most_drafted(limits: Limits) -> int:
    """Return the maximum rows of all sequences in a step with drafts, two or more of each."""
    return MAX_DRAFTED if limits.n_seqs <= FEW_DRAFTING else MANY_DRAFTED


def size_words(limits: Limits) -> dict[str, int]:
    """Return the index of the number of each named size, as far as the header has room."""
    names = [*SIZE_WORDS, *sorted(limits.more_sizes)]
    return {name: word for word, name in enumerate(names[:HEADER])}


def has_known_sizes(node: Node, limits: Limits) -> bool:
    """Return True if a step provides the numbers of rows of all values of a node."""
    shapes, words = [tensor.shape for tensor in (*node.operands(), node.output)], size_words(limits)
    return all(shape[0] in words for shape in shapes if shape and isinstance(shape[0], str))


def reads_memory(node: Node) -> bool:
    """Return True if a node attends to keys stored by another graph."""
    return node.op == "attention" and isinstance(node.state, KVState) and node.state.is_memory


class StepLayout:
    """Offsets of the fields in words. Every field has room for the largest step.

    Attributes:
        sequences: sequence of each token.
        picks: four fields of a Pick per sequence, or per token of a block that is drafted.
        numbers: ``[MAX_STEPS, limits.n_seqs]``, or for steps with drafts ``[n_seqs, MAX_STEPS, rows of a sequence]``.
        adjustments: eight words per sequence: number of ``biases`` (pairs of a token and a float), and penalties.
        past: ring of the latest tokens; their total number is ``past_counts``.
        text_length: tokens of each text whose drafts are verified.
        n_picked: random numbers that the step with drafts before this one took of each of them.
        n_taken: tokens that the latest step with drafts gave each of them.
        n_host_words: start of the fields that the device writes, too, if it runs several steps.

    The table of a window is ``[n_seqs, table_width]``.
    """

    def __init__(self, limits: Limits, *, reads_memory: bool = False) -> None:
        self._size = HEADER
        self._size_words = size_words(limits)
        self._written: dict[tuple[int, int], object] = {}  # (host buffer, offset of a field) -> its source object
        self.table_width = -(-limits.n_ctx // limits.block_size) + 1
        self.sequences = self._field(limits.n_batch)
        self.output_ids = self._field(limits.n_outputs)
        self.seq_starts = self._field(limits.n_seqs + 1)
        self.slots = self._field(limits.n_seqs)
        most_rows = most_drafted(limits)
        self.most_drafting = most_rows // 2  # sequences
        self.picks = self._field(4 * max(limits.n_seqs, most_rows))
        self.numbers = self._field(MAX_STEPS * max(limits.n_seqs, most_rows))
        self.adjustments = self._field(8 * limits.n_seqs)
        self.biases = self._field(2 * MAX_BIASES * limits.n_seqs)
        self.max_seqs = limits.n_seqs
        self.tables = {window: self._field(limits.n_seqs * self.table_width) for window in sorted(limits.n_blocks)}
        self.memory_table = self._field(limits.n_seqs * self.table_width if reads_memory else 0)
        self.memory_lengths = self._field(limits.n_seqs if reads_memory else 0)
        self._reads_memory = reads_memory
        self.n_host_words = self._size
        self.tokens = self._field(limits.n_batch)
        self.positions = self._field(limits.n_batch)
        self.past = self._field(MAX_PAST * limits.n_seqs)
        self.past_counts = self._field(limits.n_seqs)
        self.text_length = self._field(self.most_drafting)
        self.n_picked = self._field(self.most_drafting)
        self.n_taken = self._field(self.most_drafting)

    @property
    def n_words(self) -> int:
        return self._size

    def write(self, words: NDArray[np.int32], batch: Batch, memory: int = 0) -> None:
        """Write a step to a host buffer; fields whose source is the same object as in the last step are skipped."""
        n_seqs, sizes = len(batch.slots), batch.sizes
        for name, word in self._size_words.items():
            words[word] = sizes.get(name, 0)
        self.write_tokens(words, batch.tokens, memory)
        fields = {
            self.positions: batch.positions,
            self.output_ids: batch.output_ids,
            self.seq_starts: batch.seq_starts,
            self.slots: batch.slots,
        }
        for offset, values in fields.items():
            if self._is_new(memory, offset, values):
                words[offset : offset + len(values)] = values
        if self._is_new(memory, self.sequences, batch.seq_starts):
            lengths = batch.seq_starts[1:] - batch.seq_starts[:-1]
            words[self.sequences :][: lengths.sum()] = np.repeat(np.arange(n_seqs, dtype=np.int32), lengths)
        for window, table in batch.block_tables.items():
            if window in self.tables and self._is_new(memory, self.tables[window], table):
                self._write_table(words, self.tables[window], table)
        if self._reads_memory:
            assert batch.memory is not None
            words[self.memory_lengths :][:n_seqs] = batch.memory.lengths
            self._write_table(words, self.memory_table, batch.memory.block_tables)

    def write_tokens(self, words: NDArray[np.int32], tokens: NDArray[np.int32], memory: int = 0) -> None:
        if self._is_new(memory, self.tokens, tokens):
            words[self.tokens : self.tokens + len(tokens)] = tokens

    def _write_table(self, words: NDArray[np.int32], offset: int, table: NDArray[np.int32]) -> None:
        n_seqs = len(table)
        room = words[offset:][: n_seqs * self.table_width].reshape(n_seqs, self.table_width)
        room[:, : table.shape[1]] = table[:, : self.table_width]

    def _is_new(self, memory: int, offset: int, values: object) -> bool:
        is_same = self._written.get((memory, offset)) is values
        self._written[memory, offset] = values
        return not is_same

    def write_picks(
        self,
        words: NDArray[np.int32],
        picks: Sequence[Pick],
        numbers: NDArray[np.float32],
        memory: int = 0,
        n_drafted: int = 0,
    ) -> None:
        if self._is_new(memory, self.picks, picks):
            fields = [(pick.top_k, pick.top_p, pick.min_p, pick.temperature) for pick in picks]
            room = words[self.picks :][: 4 * len(picks)].reshape(-1, 4)
            room[:, 0] = [top_k for top_k, *_ in fields]
            room[:, 1:].view(np.float32)[:] = [floats for _, *floats in fields]
            if any(pick.adjusts for pick in picks):
                self._write_adjustments(words, picks)
        n_steps, n_seqs = numbers.shape
        if n_drafted:
            n_rows = 1 + n_drafted
            drawn = words[self.numbers :][: MAX_STEPS * len(picks) * n_rows].reshape(len(picks), MAX_STEPS, n_rows)
            own = numbers.reshape(len(picks), -1, n_rows)
            drawn.view(np.float32)[:, : own.shape[1]] = own
            words[self.n_picked :][: len(picks)] = 0
            return
        width = max(self.max_seqs, n_seqs)  # more rows than sequences are those of a single step
        table = words[self.numbers :][: n_steps * width].reshape(n_steps, -1)
        table.view(np.float32)[:, :n_seqs] = numbers

    def _write_adjustments(self, words: NDArray[np.int32], picks: Sequence[Pick]) -> None:
        room = words[self.adjustments :][: 8 * len(picks)].reshape(-1, 8)
        room[:, :2] = [(len(pick.biases), pick.last_n) for pick in picks]
        penalties = [(pick.repeat_penalty, pick.frequency_penalty, pick.presence_penalty) for pick in picks]
        room[:, 2:5].view(np.float32)[:] = penalties
        biases = words[self.biases :][: 2 * MAX_BIASES * len(picks)].reshape(-1, MAX_BIASES, 2)
        for row, pick in zip(biases, picks, strict=True):
            if pick.biases:
                row[: len(pick.biases), 0] = [token for token, _ in pick.biases]
                row[: len(pick.biases), 1].view(np.float32)[:] = [value for _, value in pick.biases]

    def write_pasts(self, words: NDArray[np.int32], pasts: Sequence[Sequence[int]]) -> None:
        """Write the latest tokens of each sequence, at most ``MAX_PAST``."""
        rings = words[self.past :][: MAX_PAST * len(pasts)].reshape(-1, MAX_PAST)
        words[self.past_counts :][: len(pasts)] = [len(past) for past in pasts]
        for ring, past in zip(rings, pasts, strict=True):
            ring[: len(past)] = past

    def _field(self, n_words: int) -> int:
        offset = self._size
        self._size += -(-n_words // 16) * 16
        return offset
