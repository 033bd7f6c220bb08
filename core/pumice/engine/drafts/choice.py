"""Choose how many tokens to draft: while the tokens that drafts are expected to save exceed the cost of their rows.

A table says what rows cost (``StepCosts``); it is measured once, when a model is loaded. Acceptance is a running mean
for each proposer of each sequence. A proposer that is not expected to pay is tried at doubling intervals. Nothing else
decides, and no clock is read after the load, so equal requests take equal steps.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from operator import mul
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
LEAST_ROUNDS = 5  # of steps that are not slow, however long they take, and without a notably lower time at the end
NOTABLE = 0.98  # ratio to the least time so far, below which a time counts as lower
SLOW_SECONDS = 0.1  # of a step of one row, above which a round is enough
SLOW_ALONE = 0.01  # the same where no other size is measured
RUNS = 3  # measured drafts of a length
ASSUMED = {1: 1.0, 2: 1.7, 4: 2.8, 8: 3.0, 16: 3.5, 128: 7.5, 512: 22.0}  # where no table is measured: an NVIDIA GPU
DRAFTING = 0.3  # time of a token that a model drafts, in steps of a row, where it is not measured

GAIN = 1.02  # least expected speed with drafts, relative to a step without
UNLIKELY = 0.02  # least probability of a verified token
PRIOR = 4.0  # drafts, or tokens, for which the rates before any are known count
LATEST = 16.0  # latest drafts, or tokens, that a running mean covers
LOOKED_UP_RATES = (0.4, 0.7)  # assumed acceptance of first and later tokens of drafts that are looked up
COMPUTED_RATES = (0.8, 0.8)  # ... and of those that a model computes
LONGEST_LOOKED_UP = 8  # maximum steps between two tries of a proposer that looks drafts up
PATIENCE = 4  # tries in a row before it rests
LONGEST_COMPUTED = 128  # ... and of one that computes them


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
    _known: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def of(self, n_rows: int) -> float:
        """Return the time of a step with ``n_rows`` rows; beyond the table it grows as between its last numbers."""
        known = self._known.get(n_rows)
        if known is None:  # a step asks for four
            known = self._known[n_rows] = self._interpolated(n_rows)
        return known

    def _interpolated(self, n_rows: int) -> float:
        sizes, times = list(self.rows), list(self.rows.values())
        if n_rows <= sizes[-1]:
            return float(np.interp(n_rows, sizes, times))
        slope = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2]) if len(sizes) > 1 else 1.0
        return times[-1] + slope * (n_rows - sizes[-1])

    def draft(self, name: str, n: int) -> float:
        """Return the time in which a proposer drafts ``n`` tokens of each sequence; 0 for one that looks them up."""
        cost = self.drafting.get(name)
        return cost.first + n * cost.each if cost and n else 0.0


@dataclass
class Mean:
    """A running mean, in which a number of the latest values count."""

    value: float
    weight: float = PRIOR

    def add(self, total: float, n: float) -> None:
        """Add ``n`` values with this sum."""
        if n > 0:
            self.value = (self.value * self.weight + total) / (self.weight + n)
            self.weight = min(self.weight + n, LATEST)


class Rates:
    """Acceptance of the first token of drafts, and of later ones whose predecessor was accepted."""

    def __init__(self, first: float, later: float) -> None:
        self.first = Mean(first)
        self.later = Mean(later)

    def count(self, n_drafted: int, n_accepted: int) -> None:
        """Count a draft, of which the first ``n_accepted`` tokens were right."""
        self.first.add(min(1, n_accepted), 1)
        self.later.add(max(0, n_accepted - 1), min(n_accepted, n_drafted - 1))

    def chances(self, n: int) -> list[float]:
        """Return the probability of each of ``n`` tokens to be accepted if those before it are."""
        return [self.first.value, *[self.later.value] * (n - 1)][:n]


class Acceptance:
    """What drafts of one proposer are worth for one sequence, and when it is tried next.

    Attributes:
        rates: how many of their tokens are accepted.
        wakes: number of the step from which on it is tried.
    """

    def __init__(self, is_computed: bool) -> None:
        self.rates = Rates(*(COMPUTED_RATES if is_computed else LOOKED_UP_RATES))
        self._patience, self._longest = (0, LONGEST_COMPUTED) if is_computed else (PATIENCE, LONGEST_LOOKED_UP)
        self._n_vain = 0
        self.wakes = 0

    def rest(self, step: int) -> None:
        """Note that a try of this step is not expected to pay: after a few, the next one is twice as far away.

        Rests end at multiples of their length, so that those of several sequences end together.
        """
        self._n_vain += 1
        if self._n_vain > self._patience:
            interval = min(1 << min(self._n_vain - self._patience - 1, 30), self._longest)
            self.wakes = (step // interval + 1) * interval + 1

    def end_rest(self) -> None:
        """Note that drafts are expected to pay."""
        self._n_vain = self.wakes = 0


class DraftChoice:
    """Chooses the lengths of drafts by their expected speed: tokens of a step relative to its cost.

    Args:
        n_draft: number of drafted tokens, always; -1: as many as are expected to pay.

    Attributes:
        costs: what steps cost.
    """

    def __init__(self, n_draft: int = -1) -> None:
        self.costs = StepCosts()
        self.n_draft = n_draft

    @property
    def is_fixed(self) -> bool:
        """True if the number of drafted tokens is set, so that nothing is chosen."""
        return self.n_draft >= 0

    def may_pay(self, n_rows: int) -> bool:
        """Return True if right drafts would make a step of ``n_rows`` rows without any worth its further rows."""
        if self.is_fixed:
            return self.n_draft > 0
        return any(
            (1 + n) * self.costs.of(n_rows) > GAIN * self.costs.of(n_rows * (1 + n)) for n in (1, MEASURED[-1] - 1)
        )

    def lengths(self, chances: Sequence[Sequence[float]], n_rows: int, room: int) -> list[int]:
        """Return the number of tokens to verify of each sequence's draft.

        Args:
            chances: for each sequence, the acceptance rate of each drafted token after those before.
            n_rows: rows of the step without drafts.
            room: maximum drafted tokens of all sequences together.
        """
        if self.is_fixed:
            ends = [min(room, end) for end in accumulate((min(len(own), self.n_draft) for own in chances), initial=0)]
            return [end - begin for begin, end in pairwise(ends)]
        lengths, n_seqs, tokens = [0] * len(chances), len(chances), 0.0
        best, highest = lengths[:], GAIN * n_seqs / self.costs.of(n_rows)
        coming = [own[0] if own else 0.0 for own in chances]  # probability of each draft's next token
        for n_drafted in range(1, room + 1):
            likeliest = max(coming)
            if likeliest < UNLIKELY:
                break
            i = coming.index(likeliest)
            tokens += likeliest
            lengths[i] += 1
            coming[i] *= chances[i][lengths[i]] if lengths[i] < len(chances[i]) else 0.0
            speed = (n_seqs + tokens) / self.costs.of(n_rows + n_drafted)
            if speed > highest:
                highest, best = speed, lengths[:]
        return best

    def common_length(self, name: str, rates: Sequence[Rates], n_rows: int, lengths: Sequence[int]) -> tuple[int, bool]:
        """Return the number of tokens, one of ``lengths``, to draft of every sequence, and True if it is to pay.

        If none pays, the number is that with which a try loses least.

        Args:
            name: the proposer.
            rates: acceptance of its drafts for each sequence.
            n_rows: rows of the step without drafts.
            lengths: possible numbers, ascending; a fixed one is cut to them.
        """
        if self.is_fixed:
            n = max((n for n in lengths if n <= self.n_draft), default=0)
            return n, n > 0
        speeds = {n: self._speed(name, rates, n_rows, n) for n in lengths}
        best = max(speeds, key=speeds.__getitem__, default=0)
        return best, best > 0 and speeds[best] > GAIN

    def _speed(self, name: str, rates: Sequence[Rates], n_rows: int, n: int) -> float:
        """Return the expected speed of a step that drafts ``n`` tokens of every sequence, relative to one without."""
        tokens = sum(1 + promise(own.chances(n)) for own in rates) / len(rates)
        base = self.costs.of(n_rows)
        return tokens * base / (self.costs.of(n_rows + n * len(rates)) + self.costs.draft(name, n) * base)


def promise(chances: Sequence[float]) -> float:
    """Return the expected number of accepted tokens of a draft."""
    return sum(accumulate(chances, mul))


# --- measurement


def measure_rows(step: Callable[[int], None], sizes: Sequence[int] = MEASURED) -> StepCosts:
    """Return the costs of rows, measured by ``step``, which computes a step with a number of rows.

    The sizes take turns, and the least time of each counts, since other programs can only delay a step. It ends when
    no time becomes lower any more. Slow steps are measured once, and not of all sizes.
    """
    step(sizes[0])  # prepares kernels
    is_single = len(sizes) == 1
    is_slow = min(_seconds(step, sizes[0]) for _ in range(2)) > (SLOW_ALONE if is_single else SLOW_SECONDS)
    enough = WARMING_SECONDS if is_single else MEASURING_SECONDS
    sizes = sizes[::2] if is_slow else sizes
    for size in sizes[1:]:
        step(size)
    least, began, n_rounds, n_alike = dict.fromkeys(sizes, math.inf), time.perf_counter(), 0, 0
    is_done = False
    while not is_done:
        n_rounds, n_alike = n_rounds + 1, n_alike + 1
        for size in sizes:
            seconds = _seconds(step, size)
            n_alike = 0 if seconds < NOTABLE * least[size] else n_alike
            least[size] = min(least[size], seconds)
        elapsed = time.perf_counter() - began
        is_settled = n_alike >= LEAST_ROUNDS and elapsed >= WARMING_SECONDS
        is_done = is_slow or is_settled or (n_rounds >= LEAST_ROUNDS and elapsed >= enough)
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
                return replace(StepCosts(), seconds=_row_seconds(runner, cache, place))
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


def _row_seconds(runner: Runner, cache: KVCache, place: Place) -> float:
    """Return the time of a step with one row, which steps of more rows take ``ASSUMED`` times as long as.

    The kernel of single tokens may still be compiled, so it is at most what a chunk of a prompt implies.
    """
    single, n_rows = measure_rows(_step(runner, cache, place), [1]).seconds, MEASURED[-1]
    if single > SLOW_ALONE or n_rows > min(runner.limits.n_batch, runner.limits.n_ctx - DEPTH):
        return single
    batch = batch_of(cache, [Part(place, [0] * n_rows, DEPTH, [n_rows - 1])])

    def chunk(_: int) -> None:
        if runner.picks(batch):
            next(runner.submit(batch, replace(quiet(1, 1), first_draft=None)).tokens())
        else:
            runner.outputs(batch)

    chunk(n_rows)  # prepares kernels
    return min(single, min(_seconds(chunk, n_rows) for _ in range(RUNS)) / ASSUMED[n_rows])


def _step(runner: Runner, cache: KVCache, place: Place) -> Callable[[int], None]:
    """Return what computes a step with a number of rows of one sequence, as steps with drafts are computed."""
    can = runner.capabilities
    tokens = np.random.default_rng(0).integers(runner.model.n_vocab, size=MEASURED[-1]).tolist()

    def step(n_rows: int) -> None:
        batch = batch_of(cache, [Part(place, tokens[:n_rows], DEPTH, range(n_rows))])
        if not can.max_steps or (n_rows > 1 and not can.drafted):
            runner.outputs(batch)
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
