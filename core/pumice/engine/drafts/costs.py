"""What steps and drafts of a model cost, measured once when it is loaded, before there are sequences."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.drafts.drafter import Drafter, quiet, rehearsing
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.batches import Part, Place, batch_of
from pumice.errors import PumiceError
from pumice.guard import describe

log = logging.getLogger("pumice")

DEPTH = 16  # positions before the measured rows
MEASURED = (1, 2, 4, 8, 16)  # rows of measured steps
MEASURING_SECONDS = 0.4  # after which no further round is measured
WARMING_SECONDS = 0.1  # of rounds of one size, in which an idle GPU raises its clock
LEAST_ROUNDS = 5  # of steps that are not slow, however long they take
SLOW_SECONDS = 0.1  # of a step of one row, above which a round is enough
SLOW_ALONE = 0.01  # the same where no other size is measured
RUNS = 3  # measured drafts of a length
ASSUMED = {1: 1.0, 2: 1.7, 4: 2.8, 8: 3.0, 16: 3.5}  # where no table is measured: an NVIDIA GPU
DRAFTING = 0.3  # time of a token that a model drafts, in steps of a row, where it is not measured


class DraftingCost(NamedTuple):
    """Time of a draft that a model computes, in steps of one row: ``first`` and ``each`` for every token."""

    first: float = DRAFTING
    each: float = DRAFTING


@dataclass(frozen=True)
class StepCosts:
    """Relative times of steps.

    Attributes:
        rows: time of a step by its number of rows, ascending, relative to a step with one row.
        drafting: costs of drafts by the name of the proposer that computes them.
        seconds: time of a step with one row; 0: it was not measured.
    """

    rows: Mapping[int, float] = field(default_factory=lambda: dict(ASSUMED))
    drafting: Mapping[str, DraftingCost] = field(default_factory=dict)
    seconds: float = 0.0

    def of(self, n_rows: int) -> float:
        """Return the time of a step with ``n_rows`` rows; beyond the table it grows as between its last numbers."""
        sizes, times = list(self.rows), list(self.rows.values())
        if n_rows <= sizes[-1]:
            return float(np.interp(n_rows, sizes, times))
        slope = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2]) if len(sizes) > 1 else 1.0
        return times[-1] + slope * (n_rows - sizes[-1])

    def draft(self, name: str, n: int) -> float:
        """Return the time in which a proposer drafts ``n`` tokens of each sequence; 0 for one that looks them up."""
        cost = self.drafting.get(name)
        return cost.first + n * cost.each if cost and n else 0.0


def measure_rows(step: Callable[[int], None], sizes: Sequence[int] = MEASURED) -> StepCosts:
    """Return the costs of rows, measured by ``step``, which computes a step with a number of rows.

    The sizes take turns, and the least time of each counts, since other programs can only delay a step. Slow steps are
    measured once, and not of all sizes.
    """
    step(sizes[0])  # prepares kernels
    is_single = len(sizes) == 1
    is_slow = min(_seconds(step, sizes[0]) for _ in range(2)) > (SLOW_ALONE if is_single else SLOW_SECONDS)
    enough = WARMING_SECONDS if is_single else MEASURING_SECONDS
    sizes = sizes[::2] if is_slow else sizes
    for size in sizes[1:]:
        step(size)
    least, began, n_rounds = dict.fromkeys(sizes, math.inf), time.perf_counter(), 0
    while n_rounds < LEAST_ROUNDS or time.perf_counter() - began < enough:
        n_rounds += 1
        for size in sizes:
            least[size] = min(least[size], _seconds(step, size))
        if is_slow:
            break
    single = least[sizes[0]]
    multiples = accumulate((min(float(size), seconds / single) for size, seconds in least.items()), max)
    return StepCosts(dict(zip(sizes, multiples, strict=True)), seconds=single)


def measure_draft(draft: Callable[[int], None], costs: StepCosts) -> DraftingCost:
    """Return the cost of drafts, measured by ``draft``, which computes a number of tokens, relative to ``costs``."""
    draft(3)
    one, three = (min(_seconds(draft, n) for _ in range(RUNS)) / costs.seconds for n in (1, 3))
    each = max(0.0, three - one) / 2
    return DraftingCost(max(0.0, one - each), each)


def _seconds(step: Callable[[int], None], size: int) -> float:
    began = time.perf_counter()
    step(size)
    return max(time.perf_counter() - began, 1e-9)


def measure_costs(runner: Runner, cache: KVCache, drafters: Mapping[str, Drafter], drafts: bool) -> StepCosts:
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


def _drafting(drafter: Drafter, costs: StepCosts) -> DraftingCost:
    try:
        return measure_draft(drafter.rehearse, costs)
    except Exception as error:  # left to the first draft of a sequence
        log.info("cannot measure drafts: %s", describe(error))
        return DraftingCost()
