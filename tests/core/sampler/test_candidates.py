"""Candidates: selection without sorting, against NumPy's stable sort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pumice.errors import RequestError
from pumice.sampler.candidates import Candidates, largest

# Few distinct values, so that ties are common.
TIED = st.sampled_from([-np.inf, -3.5, -0.0, 0.0, 1e-40, 0.5, 2.0, 3.0e38])
LOGITS = arrays(np.float32, st.integers(1, 300), elements=TIED)


def reference(values: np.ndarray, k: int) -> list[int]:
    return np.argsort(-values.astype(np.float64), kind="stable")[:k].tolist()


@given(LOGITS, st.integers(0, 320))
def test_largest_is_the_head_of_a_stable_sort(values: np.ndarray, k: int) -> None:
    assert largest(values, k).tolist() == reference(values, k)


@pytest.mark.parametrize("k", [1, 40, 256, 5000, 100_000])
@pytest.mark.parametrize("decimals", [1, 7])
def test_largest_of_a_whole_vocabulary(k: int, decimals: int) -> None:
    values = np.random.default_rng(k).normal(0, 3, 128_256).round(decimals).astype(np.float32)
    assert largest(values, k).tolist() == reference(values, k)


def test_largest_when_the_best_share_a_slice() -> None:
    """The bound from slices' maxima is then far too low; the answer must not change."""
    values = np.zeros(128_256, np.float32)
    values[np.arange(60) * 1024 + 7] = np.arange(60)
    assert largest(values, 40).tolist() == reference(values, 40)


def test_keep_by_mask_and_by_index() -> None:
    candidates = Candidates(np.array([0, 3, 1, 2], np.float32))
    candidates.keep(np.array([True, True, False, True]))
    assert candidates.ids.tolist() == [0, 1, 3]
    candidates.keep(np.array([2, 1]))
    assert (candidates.ids.tolist(), candidates.logits.tolist()) == ([3, 1], [2, 3])
    candidates.keep_top(5)
    assert (candidates.ids.tolist(), candidates.sorted) == ([1, 3], True)
    candidates.keep_top(1)
    assert candidates.ids.tolist() == [1]


@given(LOGITS, st.data())
def test_positions_find_what_is_there(values: np.ndarray, data: st.DataObject) -> None:
    candidates = Candidates(values)
    tokens = np.array(data.draw(st.lists(st.integers(0, 350), max_size=20)), np.int64)
    ids = list(range(len(values)))
    for half in (len(values), (len(values) + 1) // 2):
        if half < len(values):
            shuffled = np.random.default_rng(0).permutation(len(values))[:half]
            candidates.keep(shuffled)
            ids = shuffled.tolist()
        expected = [ids.index(token) if token in ids else -1 for token in tokens.tolist()]
        assert candidates.positions(tokens).tolist() == expected


def test_probabilities_are_the_softmax() -> None:
    logits = np.array([1000.0, 999.0, -np.inf], np.float32)
    np.testing.assert_allclose(Candidates(logits).probabilities(), [0.7310586, 0.2689414, 0], rtol=1e-6)


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan])
def test_nothing_to_choose_is_an_error(value: float) -> None:
    with pytest.raises(RequestError, match="no token to choose"):
        Candidates(np.full(3, value, np.float32)).probabilities()


def test_select_gives_the_token_id() -> None:
    candidates = Candidates(np.arange(5, dtype=np.float32))
    candidates.select(2)
    assert candidates.selected == 2
    candidates.keep(np.array([4, 3]))
    candidates.select(1)
    assert candidates.selected == 3
