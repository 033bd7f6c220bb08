"""What the layers and models that draft have in common: limits, guesses, and steps whose tokens become drafts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.backend.pick import Ask, Pick
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.requests.batches import Place
from pumice.engine.requests.generation import Running

GREEDY = Pick(top_k=1, temperature=0.0)


class Drafter(ABC):
    """A layer or a model that drafts, in rounds too: the model verifies the tokens in the same submission.

    Attributes:
        name: the name of its proposer.
    """

    name: str

    @abstractmethod
    def rehearse(self, n: int) -> None:
        """Draft ``n`` tokens behind a text of a few tokens, which belongs to no sequence."""

    @abstractmethod
    def holds(self, sequences: Sequence[Running], n: int) -> bool:
        """Return True if ``n`` tokens of each sequence can be drafted now; blocks for them are held then."""

    @abstractmethod
    def submit(self, sequences: Sequence[Running], n: int) -> None:
        """Submit the steps that draft ``n`` tokens of each sequence, which become the first drafts of its slot."""

    def took(self, running: Running, tokens: Sequence[int]) -> None:  # noqa: B027 - a layer computes them again
        """Note the right tokens of a sequence, before its text has them."""


@dataclass(frozen=True)
class DraftLimits:
    """Limits of proposals.

    Attributes:
        most: maximum tokens of a proposal.
        least: minimum tokens of a proposal; shorter ones are dropped.
        p_min: probability below which a token, and those after it, are not proposed.
        n_ctx: maximum positions of a sequence in the draft's cache; of a longer text it reads the end.
    """

    most: int
    least: int
    p_min: float
    n_ctx: int


class Guess(NamedTuple):
    """The most probable next token, and its probability."""

    token: int
    probability: float


def guess_of(logits: NDArray[np.float32]) -> Guess:
    """Return the most probable token of a row of logits; probability 0 if the logits are not finite."""
    token = int(logits.argmax())
    total = float(np.exp(logits - logits[token]).sum())
    return Guess(token, 1.0 / total if np.isfinite(total) else 0.0)


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
