"""Drafts of sequences: made from what proposers guess, cut to what may be verified, with cache blocks held for them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.requests.generation import Generation, Members, Running

MOST_PENDING = 64  # a generating sequence with more tokens to compute is treated like a prompt


FORCED = ""
"""In place of a proposer's name: the tokens are those that a mask forces."""


@dataclass(eq=False)
class Draft:
    """Drafted tokens, verified in the same step as the sequence's next token.

    Attributes:
        name: the proposer.
        n_accepted: accepted tokens, once it was verified.
    """

    name: str = FORCED
    tokens: Sequence[int] = ()
    n_accepted: int = 0


def may_draft(running: Running, n_new: int) -> bool:
    """Return True if the sequence is generating and the step computes all its pending tokens."""
    return bool(running.generation.generated) and running.pending == n_new <= MOST_PENDING and running.n_past > 0


def most_drafted(running: Running) -> int:
    """Return the maximum number of drafted tokens by the request, its token limit and the context."""
    generation = running.generation
    most = min(generation.n_left - 1, generation.n_ctx - len(generation.tokens))
    return most if generation.request.n_draft is None else min(most, generation.request.n_draft)


def forced_draft(generation: Generation, n: int) -> Draft:
    """Return a draft of the tokens that a mask forces, for chains that sample them (for log-probabilities)."""
    return Draft(tokens=list(generation.chain.forced)[:n] if generation.chain.masking else ())


def draft_of(name: str, tokens: Sequence[int], generation: Generation) -> Draft:
    """Return the part of proposed tokens that may be verified."""
    return Draft(name, possible_tokens(generation, tokens))


def possible_tokens(generation: Generation, tokens: Sequence[int]) -> Sequence[int]:
    """Return the longest prefix of a draft that the mask allows, without end tokens."""
    n_vocab = generation.chain.n_vocab
    tokens = list(takewhile(lambda token: 0 <= token < n_vocab and token not in generation.end_tokens, tokens))
    return tokens[: generation.chain.n_allowed(tokens)] if tokens else tokens


def checked_tokens(tokens: Sequence[int], n: int) -> list[int]:
    """Return the first ``n`` proposed tokens. Raises TypeError for what is no number."""
    return [operator.index(token) for token in tokens[:n]]


def held_drafts(
    members: Members, drafts: Sequence[Draft], lengths: Sequence[int], cache: KVCache
) -> dict[Running, Draft]:
    """Return the drafts, cut to these lengths, for which free cache blocks exist; blocks are held for them."""
    held: dict[Running, Draft] = {}
    n_copies = cache.checkpoints.available if cache.checkpoints else len(members)
    for (running, n_new), draft, length in zip(members, drafts, lengths, strict=True):
        if length and len(held) < n_copies and cache.extend(running.tables, running.n_past, n_new + length):
            draft.tokens = draft.tokens[:length]
            held[running] = draft
    return held
