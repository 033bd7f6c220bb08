"""Blocks of tokens that a draft model drafts in one step (DFlash, arXiv:2602.06036), as a proposer.

The draft's layers attend to features of all confirmed tokens, which they cache in the blocks of the sequence, and to
the block: the last token of the text, and mask tokens behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

import numpy as np

from pumice.architecture import DRAFT, FEATURES
from pumice.engine.batches import Part
from pumice.engine.draft_model import DraftLimits, Guess, guess_of
from pumice.engine.generation import Running
from pumice.engine.kv_cache import BlockTables
from pumice.engine.next_tokens import Hidden, NextTokens, Rows
from pumice.engine.runner import Runner


class BlockTokens(NextTokens):
    """Runs a draft model of blocks for the sequences of its target model.

    Positions of a cached prefix that was computed without drafts have unknown features; that affects proposals only.
    """

    computes_blocks = True

    def __init__(self, runner: Runner, limits: DraftLimits) -> None:
        super().__init__(runner, limits)
        assert runner.block is not None
        self._block = runner.block

    def _unknown(self, tables: BlockTables, first: int, n_stream: int) -> Hidden:
        return Hidden(tables, first, [np.zeros((0, n_stream), np.float32)])

    def _rehearse(self, lengths: Collection[int]) -> None:
        """Leave the first block to a sequence."""

    def _part(self, running: Running, kept: Hidden, n: int, is_last: bool) -> Part:
        return Part(running, running.generation.tokens[kept.first : kept.first + n], kept.first)

    def _read(self, parts: Sequence[Part], rows: Rows) -> None:
        self._outputs(self._batch(parts), FEATURES, features=rows)

    def _draft(self, most: Mapping[Running, int]) -> dict[Running, list[Guess]]:
        """Return the guesses for sequences: the rest of the features, then a block for each."""
        waiting = {running: kept for running in most if (kept := self._hidden[running]).n_rows}
        if waiting:
            parts = [self._part(running, kept, kept.n_rows, True) for running, kept in waiting.items()]
            self._read(parts, np.concatenate([kept.rows for kept in waiting.values()]))
        for kept in waiting.values():
            kept.drop(kept.n_rows)
        limits, sequences = self._runner.limits, list(most)
        drafts: dict[Running, list[Guess]] = {}
        n_at_once = max(1, min(limits.n_batch, limits.n_outputs) // self._block.size)
        for begin in range(0, len(sequences), n_at_once):
            some = sequences[begin : begin + n_at_once]
            parts = [self._masks(running, most[running]) for running in some]
            outputs = self._outputs(self._batch(parts), DRAFT)
            ends = accumulate(len(part.output_rows) for part in parts)
            for running, part, end in zip(some, parts, ends, strict=True):
                rows = {name: values[end - len(part.output_rows) : end] for name, values in outputs.items()}
                drafts[running] = self._probable(_guesses(rows))
        return drafts

    def _masks(self, running: Running, n: int) -> Part:
        """Return the block after the text of a sequence, with outputs for at most ``n`` tokens."""
        block, tokens, size = self._block, running.generation.tokens, self._size(running)
        rows = range(block.first, min(size, block.first + n))
        return Part(running, [tokens[-1], *[block.mask] * (size - 1)], len(tokens) - 1, rows)

    def _size(self, running: Running) -> int:
        """Return the tokens of a block after the text of a sequence, which may be near the end of the context."""
        limits = self._runner.limits
        return min(self._block.size, limits.n_ctx - len(running.generation.tokens) + 1, limits.n_batch)

    def _holds(self, running: Running, n: int) -> bool:
        return n > 0 and super()._holds(running, max(n, self._size(running) - 1))

    def _probable(self, guesses: Sequence[Guess]) -> list[Guess]:
        """Return the guesses before the first that is not probable enough."""
        ends = (i for i, guess in enumerate(guesses) if self._limits.ends(guess, self.stop))
        n = next(ends, len(guesses))
        return list(guesses[:n])


def _guesses(outputs: Mapping[str, Rows]) -> list[Guess]:
    """Return the guess of each output row of a block, with the draft's own estimate of its probability if it has one.

    Where the draft has ``candidates [n, k]``, the scores of one depend on the one chosen at the position before.
    """
    if "candidates" in outputs:
        return _chosen(outputs["candidates"], outputs["scores"])
    guesses = [guess_of(row) for row in outputs["logits"]]
    if "confidence" not in outputs:
        return guesses
    sure = outputs["confidence"][:, 0]
    return [Guess(guess.token, float(p)) for guess, p in zip(guesses, sure, strict=True)]


def _chosen(candidates: Rows, scores: Rows) -> list[Guess]:
    """Return the best candidate of each position after the one chosen before, by ``scores [n, k * k]``."""
    guesses: list[Guess] = []
    place = 0
    for tokens, after_each in zip(candidates, scores, strict=True):
        place, probability = guess_of(after_each.reshape(len(tokens), len(tokens))[place])
        guesses.append(Guess(int(tokens[place]), probability))
    return guesses
