"""Measure what steps and drafts of a model cost, once when it is loaded, before there are sequences."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.drafts.choice import MEASURED, DraftingCost, StepCosts, measure_draft, measure_rows
from pumice.engine.drafts.draft_steps import quiet, rehearsing
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.batches import Part, Place, batch_of
from pumice.errors import PumiceError
from pumice.guard import describe

log = logging.getLogger("pumice")

DEPTH = 16  # positions before the measured rows


class Measurable(Protocol):
    """A model or layer whose drafts are measured."""

    def rehearse(self, n: int) -> None:
        """Draft ``n`` tokens behind a text of a few tokens, which belongs to no sequence."""


def measure_costs(runner: Runner, cache: KVCache, drafters: Mapping[str, Measurable], drafts: bool) -> StepCosts:
    """Return the costs of a compiled model's steps; those that are assumed if it cannot compute steps by itself.

    Without ``drafts``, or where results depend on the number of rows, only the time of a step with one row is measured:
    other measurements could change a text from run to run.
    """
    can = runner.capabilities
    if not runner.model.generates or runner.model.encodes or can.n_in_flight > 1 or not (can.max_steps or drafts):
        return StepCosts()
    is_chosen = drafts and can.invariant
    try:
        with rehearsing(cache, DEPTH + MEASURED[-1]) as place:
            if place is None:
                return StepCosts()
            for start in range(0, DEPTH, runner.limits.n_batch):
                n = min(DEPTH - start, runner.limits.n_batch)
                runner.outputs(batch_of(cache, [Part(place, [0] * n, start, [n - 1])]))
            if not is_chosen:
                return replace(StepCosts(), seconds=measure_rows(_step(runner, cache, place), [1]).seconds)
            most = min(runner.limits.n_batch, runner.limits.n_outputs, runner.limits.n_ctx - DEPTH)
            sizes = [1, *(1 + n for n in can.drafted)] if can.drafted else MEASURED
            runner.placed.wait_until_prepared()
            costs = measure_rows(_step(runner, cache, place), [n for n in sizes if n <= most])
    except PumiceError:
        raise
    except Exception as error:
        log.info("cannot measure steps: %s", describe(error))
        return StepCosts()
    drafting = {name: _drafting(drafter, costs) for name, drafter in drafters.items()}
    costs = replace(costs, drafting=drafting)
    rows = ", ".join(f"{n}: {time:.2f}" for n, time in costs.rows.items())
    log.info("steps take %.2f ms; relative times by rows: %s", 1e3 * costs.seconds, rows)
    for name, cost in drafting.items():
        log.info("drafts of %s take %.2f, and %.2f for each token", name, cost.first, cost.each)
    return costs


def _step(runner: Runner, cache: KVCache, place: Place) -> Callable[[int], None]:
    """Return what computes a step with a number of rows of one sequence, as steps with drafts are computed."""
    can = runner.capabilities
    tokens = np.random.default_rng(0).integers(runner.model.n_vocab, size=MEASURED[-1]).tolist()

    def step(n_rows: int) -> None:
        batch = batch_of(cache, [Part(place, tokens[:n_rows], DEPTH, range(n_rows))])
        if not can.max_steps or (n_rows > 1 and not can.drafted):
            runner.run(batch)
            return
        numbers = np.zeros((1, n_rows), np.float32)
        ask = replace(quiet(1, 1), numbers=numbers, n_drafted=n_rows - 1, first_draft=None)
        next(runner.submit(batch, ask).tokens())

    return step


def _drafting(drafter: Measurable, costs: StepCosts) -> DraftingCost:
    try:
        return measure_draft(drafter.rehearse, costs)
    except Exception as error:  # left to the first draft of a sequence
        log.info("cannot measure drafts: %s", describe(error))
        return DraftingCost()
