"""Rows of a step that verifies drafts of sequences with masks or DRY: the restriction and random number of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pumice.backend.pick import Ask, Restriction
from pumice.engine.requests.generation import Generation
from pumice.sampler.mask import Mask

ALL = np.uint32(0xFFFFFFFF)


def restricted(
    ask: Ask, generations: Sequence[Generation], drafts: Sequence[Sequence[int]], most_added: int
) -> tuple[list[list[int]], Ask]:
    """Return the drafts with the tokens that masks force behind them, and the ``Ask`` with a restriction for each row.

    A row whose mask leaves no choice takes no random number. ``most_added``: biases of a row.
    """
    n_rows, numbers = 1 + ask.n_drafted, ask.numbers.copy()
    restrictions: list[Restriction] = []
    tokens = [list(draft) for draft in drafts]
    for i, (generation, pick) in enumerate(zip(generations, ask.picks, strict=True)):
        if not pick.restricted:
            restrictions += [Restriction()] * n_rows
            continue
        chain = generation.chain
        if chain.mask is None:  # each row may be taken, so its restriction is to be known
            tokens[i] += generation.tokens[-1:] * (ask.n_drafted - len(tokens[i]))
        tokens[i], possible = chain.look_ahead(tokens[i], ask.n_drafted, generation.end_tokens, most_added)
        own, n_drawn = ask.numbers[0, i * n_rows : (i + 1) * n_rows], 0
        for row, item in enumerate(possible):
            numbers[0, i * n_rows + row] = own[n_drawn]
            n_drawn += generation.draws(item.few)
        last = possible[-1]
        ended = last.few == ()  # the sequence ends before this row, which allows no token
        restrictions += [Restriction(item.mask, item.biases) for item in possible[: len(possible) - ended]]
        restrictions += [Restriction()] * ((i + 1) * n_rows - len(restrictions))
        if (padding := _forbidden(last.mask, chain.n_vocab)) is not None:
            tokens[i] += [padding] * (ask.n_drafted - len(tokens[i]))
    return tokens, replace(ask, numbers=numbers, restrictions=restrictions)


def _forbidden(mask: Mask | None, n_vocab: int) -> int | None:
    """Return a token that a mask forbids: no row behind it is right, so none is taken without its restriction."""
    if mask is None:
        return None
    words = np.flatnonzero(mask != ALL)
    if not len(words):
        return None
    word = int(mask[words[0]])
    token = 32 * int(words[0]) + (~word & (word + 1)).bit_length() - 1  # of the lowest bit that is 0
    return token if token < n_vocab else None
