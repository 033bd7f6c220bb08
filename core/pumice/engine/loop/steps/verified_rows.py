"""Rows of steps that verify drafts on the device: what they ask for, and the tokens that they yield."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pumice.backend.pick import Ahead, Ask
from pumice.engine.drafts.device_drafts import DraftPlan
from pumice.engine.loop.lookahead import Lookahead
from pumice.engine.loop.scheduler import Scheduler
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.loop.steps.flight import goes_on, n_equal
from pumice.engine.requests.generation import Generation, Running


def ask_rows(lookahead: Lookahead, sequences: Sequence[Running], plan: DraftPlan, follows: bool = False) -> Ask:
    """Return the ``Ask`` of steps that verify drafts, with a random number for each row.

    ``follows``: of a single step behind one of the plan's two, with the numbers of both.
    """
    n_seqs, n_rows = len(sequences), 1 + plan.n_drafted
    ask = lookahead.ask([running.generation for running in sequences], plan.n_steps * n_rows)
    if follows:
        return replace(ask, numbers=ask.numbers.T.reshape(1, -1), n_drafted=plan.n_drafted)
    numbers = ask.numbers.T.reshape(n_seqs, plan.n_steps, n_rows).swapaxes(0, 1).reshape(plan.n_steps, -1)
    return replace(ask, numbers=numbers, n_drafted=plan.n_drafted)


def take_rows(
    context: StepContext,
    running: Running,
    ahead: Ahead,
    step: int,
    rows: range,
    drafted: Sequence[int] | NDArray[np.int32] = (),
) -> bool:
    """Continue with the tokens of rows of a step. Return True if the next step was computed for them.

    ``drafted``: tokens of the rows behind the first, which the host knew. Rows of those that a mask forces, and
    that the sequence has appended by itself, are skipped.
    """
    lookahead, scheduler = context.lookahead, context.scheduler
    generation, tables, begin = running.generation, running.tables, rows.start
    while rows:
        row, rows = rows[0], rows[1:]
        if not np.isfinite(ahead.logits[step, row, 0]):
            running.undecided = True
            return False
        generation.chain.skip(lookahead.draws(generation))
        _confirm(scheduler, running, 1)
        scheduler.take([(running, lookahead.picked(generation, ahead, step, row))], context.least_forced)
        if running.pending > 1 and running.tables is tables and not generation.finish_reason:
            coming = generation.tokens[running.n_past : -1]
            n_computed = n_equal(coming, drafted[row - begin :])
            _confirm(scheduler, running, n_computed)
            rows = rows[n_computed:]
        if not goes_on(running) or not _was_expected(generation):
            return False
    return True


def _was_expected(generation: Generation) -> bool:
    """Return True if the restriction behind the latest token, if there is one, was known before the step."""
    pick = generation.chain.pick
    return pick is None or not pick.restricted or generation.chain.was_expected


def _confirm(scheduler: Scheduler, running: Running, n: int) -> None:
    """Record that the next tokens of a sequence are in the cache, and in its recurrent state."""
    scheduler.computed(running, n)
    running.n_ahead -= n
