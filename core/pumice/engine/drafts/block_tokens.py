"""Blocks of tokens that a draft model drafts in one step (DFlash, arXiv:2602.06036), as a proposer.

The draft's layers attend to features of all confirmed tokens, which they cache in the blocks of the sequence, and to
the block: the last token of the text, and mask tokens behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, takewhile

import numpy as np

from pumice.architecture import DRAFT, FEATURES, STREAM
from pumice.backend.step import LATEST
from pumice.engine.drafts.drafter import DraftLimits, Guess, guess_of, quiet, rehearsing
from pumice.engine.drafts.next_tokens import Hidden, NextTokens, Rows, row_of_zeros
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.batches import Part, Place
from pumice.engine.requests.generation import Generation


class BlockTokens(NextTokens):
    """Runs a draft model of blocks for the sequences of its target model.

    Positions of a cached prefix that was computed without drafts have unknown features; that affects proposals only.
    """

    n_before = 0

    def __init__(self, runner: Runner, limits: DraftLimits) -> None:
        super().__init__(runner, limits)
        assert runner.model.block is not None
        self._block = runner.model.block

    def _part(self, running: Generation, kept: Hidden, n: int, is_last: bool) -> Part:
        return Part(running, running.tokens[kept.first : kept.first + n], kept.first)

    def _read(self, parts: Sequence[Part], rows: Rows) -> None:
        self._outputs(self._batch(parts), FEATURES, features=rows)

    def _draft(self, most: Mapping[Generation, int]) -> dict[Generation, list[Guess]]:
        """Return the guesses for sequences: the rest of the features, then a block for each."""
        self._read_features(most)
        limits, sequences = self._runner.limits, list(most)
        drafts: dict[Generation, list[Guess]] = {}
        n_at_once = max(1, min(limits.n_batch, limits.n_outputs) // self._block.size)
        for begin in range(0, len(sequences), n_at_once):
            some = sequences[begin : begin + n_at_once]
            parts = [self._masks(running, most[running]) for running in some]
            outputs = self._outputs(self._batch(parts), DRAFT)
            ends = accumulate(len(part.output_rows) for part in parts)
            for running, part, end in zip(some, parts, ends, strict=True):
                rows = {name: values[end - len(part.output_rows) : end] for name, values in outputs.items()}
                drafts[running] = list(takewhile(lambda guess: guess.probability >= self._limits.p_min, _guesses(rows)))
        return drafts

    def rehearse(self, n: int) -> None:
        assert self.cache is not None
        with rehearsing(self.cache, 1 + self._block.size) as place:
            if place is not None:
                self._read([Part(place, [0], 0)], row_of_zeros(self._runner))
                self._outputs(self._batch([self._block_at(place, 0, 1, self._block.size, n)]), DRAFT)

    @property
    def _longest_round(self) -> int:
        most = min(self._limits.most, self._block.size - self._block.first)
        return most if self._runner.capabilities_of(DRAFT).picks.rows else 0  # the program picks all tokens of a block

    def holds(self, sequences: Sequence[Generation], n: int) -> bool:
        limits, n_seqs = self._runner.limits, len(sequences)
        fits = n_seqs * n <= min(self._runner.capabilities_of(DRAFT).picks.rows, limits.n_outputs)
        is_whole = all(self._size(running) >= self._block.first + n for running in sequences)
        return fits and is_whole and n_seqs * self._block.size <= limits.n_batch and super().holds(sequences, n)

    def submit(self, sequences: Sequence[Generation], n: int) -> None:
        """Submit a step that reads the rest of the features, and the one that drafts a block of each sequence."""
        self._read_features(sequences, waits=False)
        blocks = [self._masks(running, n) for running in sequences]
        self._runner.submit(self._batch(blocks), quiet(n * len(blocks), 1), graph=DRAFT)

    def submit_after(self, sequences: Sequence[Generation], n: int, n_drafted: int) -> None:
        n_rows, size, listening = 1 + n_drafted, self._block.size, self._runner.model.listening
        assert listening is not None
        starts = [(running, running.n_past) for running in sequences]
        reads = self._batch([Part(place, [0] * n_rows, position) for place, position in starts])
        reads.passed = {"features": self._runner.passed(listening, STREAM, len(reads.tokens))}
        self._runner.submit(reads, graph=FEATURES)
        batch = self._batch([self._block_at(place, LATEST, 0, size, n) for place, _ in starts])
        batch.relative = True
        self._runner.submit(batch, quiet(n * len(starts), 1), graph=DRAFT)

    def holds_after(self, sequences: Sequence[Generation], n_drafted: int) -> bool:
        assert self.cache is not None
        n_rows, size = 1 + n_drafted, self._block.size
        if size > 1 + max(self._runner.capabilities.drafted, default=0):
            return False
        has_room = all(item.n_ctx - item.n_past >= n_rows + size for item in sequences)
        return has_room and all(self.cache.extend(item.tables, item.n_past, n_rows + size) for item in sequences)

    def _read_features(self, sequences: Collection[Generation], waits: bool = True) -> None:
        """Let the draft read the features of sequences that it has not read; ``waits``: until it has."""
        waiting = {running: kept for running in sequences if (kept := self._hidden[running]).n_rows}
        if not waiting:
            return
        parts = [self._part(running, kept, kept.n_rows, True) for running, kept in waiting.items()]
        rows = np.concatenate([kept.rows for kept in waiting.values()])
        for kept in waiting.values():
            kept.drop(kept.n_rows)
        if waits:
            self._read(parts, rows)
        else:
            batch = self._batch(parts)
            batch.inputs = {"features": np.ascontiguousarray(rows, np.float32)}
            self._runner.submit(batch, graph=FEATURES)

    def _masks(self, running: Generation, n: int) -> Part:
        """Return the block after the text of a sequence, with outputs for at most ``n`` tokens."""
        tokens = running.tokens
        return self._block_at(running, tokens[-1], len(tokens) - 1, self._size(running), n)

    def _block_at(self, place: Place, token: int, position: int, size: int, n: int) -> Part:
        """Return a block of ``size`` tokens that begins with this one, with outputs for at most ``n`` tokens."""
        block = self._block
        rows = range(block.first, min(size, block.first + n))
        return Part(place, [token, *[block.mask] * (size - 1)], position, rows)

    def _size(self, running: Generation) -> int:
        """Return the tokens of a block after the text of a sequence, which may be near the end of the context."""
        limits = self._runner.limits
        return min(self._block.size, limits.n_ctx - len(running.tokens) + 1, limits.n_batch)

    def _holds(self, running: Generation, n: int) -> bool:
        return n > 0 and super()._holds(running, max(n, self._size(running) - 1))


def _guesses(outputs: Mapping[str, Rows]) -> list[Guess]:
    """Return the guess of each output row of a block, by the draft's own estimate of its probability if it has one."""
    guesses = [guess_of(row) for row in outputs["logits"]]
    if "confidence" not in outputs:
        return guesses
    sure = np.nan_to_num(outputs["confidence"][:, 0])
    return [Guess(guess.token, float(p)) for guess, p in zip(guesses, sure, strict=True)]
