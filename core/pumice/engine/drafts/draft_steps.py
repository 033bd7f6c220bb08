"""Steps that draft the tokens of a round: who submits them, their picks, and the tokens that they pass on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from pumice.backend.pick import Ask, Pick
from pumice.backend.step import PassedTokens, Pending
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.requests.batches import Place
from pumice.engine.requests.generation import Running

GREEDY = Pick(top_k=1, temperature=0.0)


class Drafter(Protocol):
    """Submits steps that draft the tokens of a round: a layer, or a draft model."""

    @property
    def name(self) -> str:
        """The name of its proposer."""

    def knows(self, running: Running) -> bool:
        """Return True if the state before the last token of a sequence is known."""

    def holds(self, sequences: Sequence[Running], n: int) -> bool:
        """Return True if ``n`` tokens of each sequence can be drafted now; blocks for them are held then."""

    def submit(self, sequences: Sequence[Running], n: int) -> list[Pending]:
        """Submit the steps that draft ``n`` tokens of each sequence, and return those that pick them."""

    def took(self, running: Running, tokens: Sequence[int]) -> None:
        """Note the right tokens of a sequence, before its text has them."""


def quiet(n_rows: int, n_steps: int) -> Ask:
    """Return the ``Ask`` for the most probable tokens of consecutive steps, without their probabilities."""
    return Ask([GREEDY] * n_rows, np.zeros((n_steps, n_rows), np.float32), 1, [()] * n_rows)


def passed_to(drafts: Sequence[Pending], n_seqs: int, n_drafted: int, n: int) -> list[PassedTokens]:
    """Return ``n`` tokens that steps draft as those of a step with ``n_drafted`` tokens of each sequence.

    The first step drafts a token of each sequence, and the second ones the others; a single step drafts all of them.
    """
    rows = (np.arange(n_seqs)[None] * (1 + n_drafted) + np.arange(1, 1 + n)[:, None]).astype(np.int32)
    if len(drafts) == 1:
        return [PassedTokens(drafts[0], rows.T.reshape(1, -1))]
    return [PassedTokens(pending, part) for pending, part in zip(drafts, (rows[:1], rows[1:]), strict=False)]


@contextmanager
def rehearsing(cache: KVCache, n_tokens: int) -> Iterator[Place | None]:
    """Hold blocks for a sequence before there are others; yields None if there are too few."""
    tables, _ = cache.begin([], loads=False)
    try:
        yield Place(0, tables) if cache.extend(tables, 0, n_tokens) else None
    finally:
        cache.release(tables)
