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


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan])
def test_nothing_to_choose_is_an_error(value: float) -> None:
    with pytest.raises(RequestError, match="no token to choose"):
        Candidates(np.full(3, value, np.float32)).probabilities()
