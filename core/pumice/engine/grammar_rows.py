"""Rows of a step that verifies drafts of sequences with masks: the restriction of each, and its random number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pumice.backend.pick import Ask, Restriction
from pumice.engine.generation import Generation


def restricted(
    ask: Ask, generations: Sequence[Generation], drafts: Sequence[Sequence[int]]
) -> tuple[list[list[int]], Ask]:
    """Return the drafts with the tokens that masks force behind them, and the ``Ask`` with a restriction for each row.

    A row whose mask leaves no choice takes no random number.
    """
    n_rows, numbers = 1 + ask.n_drafted, ask.numbers.copy()
    restrictions: list[Restriction] = []
    tokens = [list(draft) for draft in drafts]
    for i, (generation, pick) in enumerate(zip(generations, ask.picks, strict=True)):
        if not pick.restricted:
            restrictions += [Restriction()] * n_rows
            continue
        tokens[i], possible = generation.chain.look_ahead(tokens[i], ask.n_drafted, generation.end_tokens)
        own, n_drawn = ask.numbers[0, i * n_rows : (i + 1) * n_rows], 0
        for row, (_, few) in enumerate(possible):
            numbers[0, i * n_rows + row] = own[n_drawn]
            n_drawn += generation.draws(few)
        ended = possible[-1].few == ()  # the sequence ends before this row, which allows no token
        restrictions += [Restriction(mask) for mask, _ in possible[: len(possible) - ended]]
        restrictions += [Restriction()] * ((i + 1) * n_rows - len(restrictions))
    return tokens, replace(ask, numbers=numbers, restrictions=restrictions)
