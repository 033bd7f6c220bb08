"""Lengths of drafts by the costs of rows and acceptance: simulated texts, and the measurement of costs."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.engine.drafts import choice as module
from pumice.engine.drafts.choice import Acceptance, DraftChoice, DraftingCost, StepCosts, measure_draft, measure_rows

SIZES = (1, 2, 4, 8, 16)


def choice(cost: float, computing: float = 0.0) -> DraftChoice:
    """Return a choice where each row more takes ``cost`` of the first, and a computed token ``computing``."""
    made = DraftChoice()
    drafting = {"draft": DraftingCost(computing, computing)} if computing else {}
    made.costs = StepCosts({n: 1 + cost * (n - 1) for n in SIZES}, drafting)
    return made


def simulate(
    right: Callable[[int], float], cost: float, n_seqs: int, n_tokens: int = 512, computing: float = 0.0
) -> float:
    """Return the speed of writing texts, relative to that without drafts.

    Args:
        right: probability of a drafted token to be right by its position in the text.
        cost: time of a row more, in steps of one row.
        n_seqs: sequences that are computed together.
        n_tokens: tokens of each text.
        computing: time of a token that a model computes; 0: drafts are looked up.
    """
    random, made = np.random.default_rng(1), choice(cost, computing)
    owners = [Acceptance(computing > 0) for _ in range(n_seqs)]
    written, seconds, step = [0] * n_seqs, 0.0, 0
    while (done := min(written)) < n_tokens:
        step += 1
        awake = [i for i, own in enumerate(owners) if own.wakes <= step]
        n = 15
        if computing and awake:
            n, pays = made.common_length("draft", [owners[i].rates for i in awake], n_seqs, range(1, 16))
            for i in awake:
                owners[i].end_rest() if pays else owners[i].rest(step)
            seconds += made.costs.draft("draft", n)
        chances = [own.rates.chances(n) if i in awake else [] for i, own in enumerate(owners)]
        lengths = made.lengths(chances, n_seqs, 64 - n_seqs)
        seconds += made.costs.of(n_seqs + sum(lengths)) / made.costs.of(n_seqs)
        for i in range(n_seqs):
            hits = random.random(n) < right(done)
            n_right = int(np.argmin([*hits, False]))
            if i in awake:
                owners[i].rates.count(lengths[i] or 1, min(n_right, lengths[i] or 1))
                if not computing:
                    owners[i].end_rest() if lengths[i] else owners[i].rest(step)
            written[i] += 1 + min(n_right, lengths[i])
    return sum(written) / n_seqs / seconds


@pytest.mark.parametrize("n_seqs", [1, 4])
@pytest.mark.parametrize("cost", [0.02, 0.2, 0.45, 1.0])
@pytest.mark.parametrize("right", [0.0, 0.3, 0.6, 0.95])
def test_drafts_cost_little_and_bring_most_of_what_they_can(right: float, cost: float, n_seqs: int) -> None:
    speed = simulate(lambda _: right, cost / n_seqs, n_seqs)
    assert speed >= 0.97
    base = 1 + cost / n_seqs * (n_seqs - 1)
    most = (64 - n_seqs) // n_seqs
    best = max(sum(right**i for i in range(k + 1)) * base / (base + cost * k) for k in range(min(15, most) + 1))
    assert speed >= 0.85 * best


@pytest.mark.parametrize(
    ("right", "cost", "least"),
    [(0.0, 0.2, 0.97), (0.3, 0.4, 0.95), (0.95, 0.2, 1.6), (0.95, 0.3, 1.35), (0.9, 0.3, 1.15)],
)
def test_a_draft_model_is_asked_if_it_pays(right: float, cost: float, least: float) -> None:
    assert simulate(lambda _: right, cost, 1, computing=0.15) >= least


@pytest.mark.parametrize("period", [10, 50])
@pytest.mark.parametrize("cost", [0.2, 0.45])
def test_texts_that_stop_repeating_cost_little(period: int, cost: float) -> None:
    assert simulate(lambda position: 0.95 if position // period % 2 else 0.0, cost, 1) >= 0.97


@given(st.floats(1e-3, 0.5), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_measured_costs_are_those_of_the_computing(single: float, row: float, first: float, each: float) -> None:
    """By a clock that only computing moves on."""
    now = 0.0

    def compute(seconds: float) -> None:
        nonlocal now
        now += seconds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now))
        costs = measure_rows(lambda n: compute(single * (1 + row * (n - 1))))
        drafting = measure_draft(lambda n: compute(single * (first + each * n)), costs)
    assert costs.seconds == pytest.approx(single)
    assert {n: costs.of(n) for n in costs.rows} == pytest.approx({n: 1 + row * (n - 1) for n in costs.rows})
    shortest = 1e-9 / single  # a step takes a nanosecond at least
    assert drafting == pytest.approx((first, each), abs=1e-6 + 2 * shortest)
