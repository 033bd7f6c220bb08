"""Steps that draft the tokens of a round: who submits them, and their picks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from pumice.backend.pick import Ask, Pick
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

    def submit(self, sequences: Sequence[Running], n: int) -> None:
        """Submit the steps that draft ``n`` tokens of each sequence, which become the first drafts of its slot."""

    def took(self, running: Running, tokens: Sequence[int]) -> None:
        """Note the right tokens of a sequence, before its text has them."""


def quiet(n_rows: int, n_steps: int, first_draft: int = 0) -> Ask:
    """Return the ``Ask`` for the most probable tokens of consecutive steps, without their probabilities.

    They become drafts of their slots, from ``first_draft`` on.
    """
    return Ask([GREEDY] * n_rows, np.zeros((n_steps, n_rows), np.float32), 1, [()] * n_rows, first_draft=first_draft)


@contextmanager
def rehearsing(cache: KVCache, n_tokens: int) -> Iterator[Place | None]:
    """Hold blocks for a sequence before there are others; yields None if there are too few."""
    tables, _ = cache.begin([], loads=False)
    try:
        yield Place(0, tables) if cache.extend(tables, 0, n_tokens) else None
    finally:
        cache.release(tables)
