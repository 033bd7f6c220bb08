"""Acceptance rates of drafted tokens, and the lengths of drafts that follow from them and from the cost of rows."""

from collections.abc import Sequence

import numpy as np
import pytest

from pumice.engine.acceptance import CERTAIN, LATER, PARTS, Acceptance, DraftSummary, Record, Stop, part_of
from pumice.engine.draft_length import DraftLength

TILES = [1.0, 1.2, 1.25, 1.3, 1.35, 1.4, 1.45, 1.5, 2.2, 2.25, 2.3, 2.35, 2.4, 2.45, 2.5, 2.55]
"""Time of a step of 1, 2, ... rows: a tile has eight rows."""


def summary(probabilities: Sequence[float], record: Record | None = None) -> DraftSummary:
    return DraftSummary(("draft", 7), len(probabilities), record or Record(), probabilities)


def measured(rows: Sequence[float] = TILES) -> DraftLength:
    """Lengths by these times of a sequence's steps, with credit to spend, after steps without drafts."""
    length = DraftLength()
    for _ in range(3):
        for n, seconds in enumerate(rows):
            length.took(1, 1, n, n, seconds)
    for _ in range(100):
        length.took(1, 1, 0, 0, rows[0])
    return length


def test_estimates_of_a_proposer_are_rates_from_the_first_draft_on():
    chances = Acceptance().chances(summary([0.97, 0.5, 0.1]))
    assert chances == pytest.approx([0.97, 0.5, 0.1], abs=0.5 / PARTS)
    assert Acceptance().promise(summary([0.97, 0.5, 0.1])) == pytest.approx(0.97 + 0.485 + 0.05, abs=0.1)
    assert Acceptance().chances(DraftSummary(CERTAIN, 2, Record())) == [1.0, 1.0]
    assert Acceptance().chances(DraftSummary(("ngram", 2), 3, Record())) == [0.4, 0.7, 0.7]


@pytest.mark.parametrize(("stated", "right"), [(0.97, 0.4), (0.3, 0.9), (0.6, 0.6)])
def test_estimates_are_calibrated_by_acceptance(stated, right):
    """For other sequences too, since each is judged for all."""
    acceptance, random = Acceptance(), np.random.default_rng(0)
    for _ in range(200):
        acceptance.judge(summary([stated]), int(random.random() < right))
    assert acceptance.chances(summary([stated])) == pytest.approx([right], abs=0.15)
    untouched = acceptance.rates("draft")[part_of(0.8)]
    assert untouched == pytest.approx(0.8, abs=0.5 / PARTS)


def test_a_sequence_that_accepts_less_expects_less():
    """As a text sampled at a high temperature, beside those of others."""
    acceptance, strange = Acceptance(), Record()
    for _ in range(40):
        for _ in range(4):
            acceptance.judge(summary([0.9]), 1)
        acceptance.judge(summary([0.9], strange), 0)
    assert acceptance.chances(summary([0.9]))[0] > 0.7
    assert acceptance.chances(summary([0.9], strange))[0] < 0.5


def test_only_tokens_behind_right_ones_are_judged():
    acceptance = Acceptance()
    for _ in range(100):
        acceptance.judge(summary([0.9, 0.4, 0.6]), 1)
    rates = acceptance.rates("draft")
    assert rates[part_of(0.9)] > 0.95
    assert rates[part_of(0.4)] < 0.1
    assert rates[part_of(0.6)] == pytest.approx(0.6, abs=0.5 / PARTS)


@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [
        ([0.97] * 12, 12),
        ([0.8] * 12, 7),  # up to the end of a tile
        ([0.97, 0.97, 0.97, 0.02, 0.97], 3),
        ([0.6, 0.5, 0.5, 0.5, 0.5], 4),
        ([0.1, 0.97, 0.97], 0),
    ],
)
def test_tokens_are_verified_that_are_worth_their_row(probabilities, expected):
    assert measured().choose([summary(probabilities)], 1, 15) == [expected]


def test_a_row_is_worth_less_where_tokens_come_fast():
    """A doubtful token is verified in a slow text, and not where drafts are long."""
    slow, fast = measured(), measured()
    for _ in range(100):
        fast.took(1, 1, 7, 7, 1.5)
        slow.took(1, 1, 0, 0, 1.0)
    doubtful = [summary([0.3])]
    assert slow.choose(doubtful, 1, 15) == [1]
    assert fast.choose(doubtful, 1, 15) == [0]


def test_drafts_without_estimates_are_as_long_as_the_step_is_fastest():
    """Guessed rates of a new proposer would lose the credit, which comes back slowly, with long wrong drafts."""
    lengths = measured([1.0 + 0.04 * n for n in range(16)])
    assert lengths.choose([DraftSummary(("lookup", 0), 12, Record())], 1, 15) == [
        5
    ]  # 6 at the pace of steps without drafts


def test_drafts_are_computed_as_long_as_another_token_pays():
    length = measured()
    for n in range(1, 9):
        length.asked("draft", 0.02 * (n + 2), n)
    stop = length.stop("draft", 1, 1)
    assert stop is not None
    n = next(n for n in range(1, 31) if not stop.goes_on([0.85] * n))
    assert n == 7  # the next row is a tile more
    assert stop.goes_on([0.4])
    assert stop.goes_on([0.97, 0.97, 0.4])
    assert not stop.goes_on([0.3, 0.3])
    dear = measured()
    for n in range(1, 9):
        dear.asked("draft", 0.5 * (n + 2), n)
    stop = dear.stop("draft", 1, 1)
    assert stop is not None
    assert not stop.goes_on([0.6])
    assert DraftLength(5).stop("draft", 1, 1) is None


def test_a_dear_row_is_computed_if_those_behind_it_are_cheap():
    """Sure tokens go on over the end of a tile, since the whole next one pays."""
    length = measured([1.0, 1.01, 1.02, 1.8, *[1.8] * 12])
    for n in range(1, 9):
        length.asked("draft", 0.001 * (n + 2), n)
    for _ in range(50):
        length.acceptance.computed(summary([0.99] * 8))
    stop = length.stop("draft", 1, 1)
    assert stop is not None
    assert stop.goes_on([0.99, 0.99])
    assert not stop.goes_on([0.2, 0.2])


def test_the_mean_rate_of_later_tokens_is_that_of_computed_ones():
    acceptance = Acceptance()
    assert acceptance.later("draft") == LATER
    for _ in range(50):
        acceptance.computed(summary([0.97, 0.97, 0.3]))
    assert acceptance.later("draft") == pytest.approx((0.97 + 0.3) / 2, abs=0.06)


def test_few_tokens_are_computed_before_any_were_judged():
    length = measured()
    assert length.most_computed("draft") == 3
    length.acceptance.judge(summary([0.9]), 1)
    assert length.most_computed("draft") > 8
    assert DraftLength(5).most_computed("draft") == 5


def test_no_token_is_computed_behind_the_last_estimate():
    stop = Stop([1.0] * PARTS, [0.5, 0.5])
    assert stop.goes_on([0.9, 0.9])
    assert not stop.goes_on([0.9, 0.9, 0.9])
