"""Drafts of sequences, and what the layers and models that compute them have in common."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.backend.pick import Ask, Pick
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.batches import Place
from pumice.engine.requests.generation import Generation, Members

GREEDY = Pick(top_k=1, temperature=0.0)
MOST_PENDING = 64  # a generating sequence with more tokens to compute is treated like a prompt
FORCED = ""
"""In place of a proposer's name: the tokens are those that a mask forces, of a chain that samples them."""


@dataclass(eq=False)
class Draft:
    """Drafted tokens, verified in the same step as the sequence's next token.

    Attributes:
        name: the proposer.
        n_accepted: accepted tokens, once it was verified.
    """

    name: str
    tokens: Sequence[int]
    n_accepted: int = 0


def may_draft(running: Generation, n_new: int) -> bool:
    """Return True if the sequence is generating and the step computes all its pending tokens."""
    return bool(running.generated) and running.pending == n_new <= MOST_PENDING and running.n_past > 0


def most_drafted(running: Generation) -> int:
    """Return the maximum number of drafted tokens by the request, its token limit and the context."""
    most = min(running.n_left - 1, running.n_ctx - len(running.tokens))
    return most if running.request.n_draft is None else min(most, running.request.n_draft)


def possible_tokens(generation: Generation, tokens: Sequence[int]) -> Sequence[int]:
    """Return the longest prefix of a draft that the mask allows, without end tokens."""
    n_vocab = generation.chain.n_vocab
    tokens = list(takewhile(lambda token: 0 <= token < n_vocab and token not in generation.end_tokens, tokens))
    return tokens[: generation.chain.n_allowed(tokens)] if tokens else tokens


def checked_tokens(tokens: Sequence[int], n: int) -> list[int]:
    """Return the first ``n`` proposed tokens. Raises TypeError for what is no number."""
    return [operator.index(token) for token in tokens[:n]]


def held_drafts(
    members: Members, drafts: Sequence[Draft | None], lengths: Sequence[int], cache: KVCache
) -> dict[Generation, Draft]:
    """Return the drafts, cut to these lengths, for which free cache blocks exist; blocks are held for them."""
    held: dict[Generation, Draft] = {}
    n_copies = cache.checkpoints.available if cache.checkpoints else len(members)
    for (running, n_new), draft, length in zip(members, drafts, lengths, strict=True):
        if not draft or not length or len(held) == n_copies:
            continue
        if cache.extend(running.tables, running.n_past, n_new + length):
            draft.tokens = draft.tokens[:length]
            held[running] = draft
    return held


# --- layers and models that draft


class Drafter(ABC):
    """A layer or a model that drafts: proposals, which the host reads, or rounds, which stay on the device.

    In a round the model verifies the tokens in the same submission.

    Attributes:
        name: that of the choice of proposers.
        takes_media: True if it drafts behind prompts with images or sound, too, of which it reads the text.
    """

    name: str
    takes_media: ClassVar[bool] = False

    @abstractmethod
    def rehearse(self, n: int) -> None:
        """Draft ``n`` tokens behind a text of a few tokens, which belongs to no sequence."""

    def read(self, sequences: Sequence[Generation]) -> None:  # noqa: B027 - a layer reads what steps compute
        """Read a part of the new texts of sequences, so that long ones do not keep the engine from its steps."""

    @abstractmethod
    def knows(self, running: Generation) -> bool:
        """Return True if it has read enough of a sequence to draft for it."""

    @abstractmethod
    def propose(self, sequences: Sequence[Generation], n: Sequence[int]) -> list[Sequence[int]]:
        """Return the proposals for sequences, of at most ``n[i]`` tokens each; none where it cannot draft now."""

    @abstractmethod
    def drop(self, running: Generation) -> None:
        """Forget a sequence."""

    def close(self, generation: Generation) -> None:  # noqa: B027 - a layer keeps nothing without a place
        """Forget a sequence that has ended."""

    # --- rounds

    @abstractmethod
    def submits(self, target: Runner) -> bool:
        """Return True if its steps pass their tokens to steps of the model on the device."""

    @abstractmethod
    def holds(self, sequences: Sequence[Generation], n: int) -> bool:
        """Return True if ``n`` tokens of each sequence can be drafted now; blocks for them are held then."""

    @abstractmethod
    def submit(self, sequences: Sequence[Generation], n: int) -> None:
        """Submit the steps that draft ``n`` tokens of each sequence, which become the first drafts of its slot."""

    def took(self, running: Generation, tokens: Sequence[int]) -> None:  # noqa: B027 - a layer computes them again
        """Note the right tokens of a sequence, before its text has them."""

    def holds_after(self, sequences: Sequence[Generation], n_drafted: int) -> bool:
        """Hold blocks for a round behind a pending step that verifies ``n_drafted`` tokens; False if it cannot be."""
        return False

    def submit_after(self, sequences: Sequence[Generation], n: int, n_drafted: int) -> None:
        """Submit the same as ``submit`` behind a pending step that verifies ``n_drafted`` tokens of each sequence."""
        raise NotImplementedError

    def went_on(self, sequences: Collection[Generation], lost: Collection[Generation]) -> None:  # noqa: B027
        """Note that a step behind which others were submitted has ended: its tokens are read, but of ``lost`` ones."""


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
