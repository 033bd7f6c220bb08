"""Samplers that truncate against their definitions, over large vocabularies too; and what holds for all."""

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from imported_late import Late
from pumice.errors import RequestError
from pumice.sampler import Chain, SamplerContext
from pumice_samplers import SAMPLERS

scipy = Late("scipy")

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
LARGE = np.random.default_rng(0).normal(0, 3, 20_000).astype(np.float32)
SMALL = np.random.default_rng(1).normal(0, 2, 50).astype(np.float32)


def build(n_vocab: int, history: list[int] | None = None, tokenizer: Any = None, **params: Any) -> Chain:
    context = SamplerContext(n_vocab, seed=1, tokenizer=tokenizer)
    chain = Chain.build(SAMPLERS, list(SAMPLERS), OFF | params, context)
    for token in history or []:
        chain.accept(token)
    return chain


def probabilities(logits: np.ndarray, **params: Any) -> np.ndarray:
    """float64 [n_vocab]: what the default chain leaves to choose from."""
    candidates = build(len(logits), **params).apply(logits)
    result = np.zeros(len(logits))
    result[candidates.ids] = candidates.probabilities()
    return result


def expected(logits: np.ndarray, kept: Any) -> np.ndarray:
    masked = np.full(len(logits), -np.inf)
    masked[kept] = logits.astype(np.float64)[kept]
    return scipy.special.softmax(masked)


def check(logits: np.ndarray, kept: Any, **params: Any) -> None:
    np.testing.assert_allclose(probabilities(logits, **params), expected(logits, kept), rtol=1e-4, atol=1e-9)


def ranked(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-logits, kind="stable")
    return order, scipy.special.softmax(logits.astype(np.float64))[order]


@pytest.mark.parametrize("logits", [SMALL, LARGE], ids=["small", "large"])
class TestTruncation:
    @pytest.mark.parametrize("k", [1, 40, 3000, 10**9])
    def test_top_k(self, logits: np.ndarray, k: int) -> None:
        check(logits, np.argsort(-logits, kind="stable")[:k], top_k=k)

    @pytest.mark.parametrize(("p", "min_keep"), [(0.0, 0), (0.4, 0), (0.4, 30), (0.95, 0), (0.999, 0), (0.4, 10**6)])
    def test_top_p(self, logits: np.ndarray, p: float, min_keep: int) -> None:
        order, mass = ranked(logits)
        n = next((i + 1 for i, total in enumerate(np.cumsum(mass)) if total >= p), len(order))
        check(logits, order[: max(n, min_keep)], top_p=p, min_keep=min_keep)

    @pytest.mark.parametrize(("p", "min_keep"), [(0.02, 0), (0.5, 0), (1.0, 0), (0.5, 25)])
    def test_min_p(self, logits: np.ndarray, p: float, min_keep: int) -> None:
        order, mass = ranked(logits)
        n = int((mass >= p * mass[0] * (1 - 1e-6)).sum())
        check(logits, order[: max(n, min_keep)], min_p=p, min_keep=min_keep)

    @pytest.mark.parametrize("n", [0.3, 1.0, 3.0])
    def test_top_n_sigma(self, logits: np.ndarray, n: float) -> None:
        exact = logits.astype(np.float64)
        check(logits, exact >= exact.max() - n * exact.std(), top_n_sigma=n)

    @pytest.mark.parametrize(("p", "min_keep"), [(0.0, 0), (0.2, 0), (0.2, 20), (0.9, 0)])
    def test_typical_p(self, logits: np.ndarray, p: float, min_keep: int) -> None:
        q = scipy.special.softmax(logits.astype(np.float64))
        order = np.argsort(np.abs(-np.log(q) - scipy.stats.entropy(q)))
        n = next((i + 1 for i, total in enumerate(np.cumsum(q[order])) if total > p), len(order))
        check(logits, order[: max(n, min_keep)], typical_p=p, min_keep=min_keep)

    @pytest.mark.parametrize("threshold", [0.0, 0.004, 0.05, 0.3])
    def test_xtc(self, logits: np.ndarray, threshold: float) -> None:
        order, mass = ranked(logits)
        n = max(int((mass >= threshold).sum()), 1)
        check(logits, order[n - 1 :], xtc_probability=1.0, xtc_threshold=threshold)


def test_a_sum_that_hits_p_exactly() -> None:
    """Top-p stops when it reaches p; typical, when it exceeds it."""
    equal = np.zeros(4, np.float32)
    check(equal, [0, 1], top_p=0.5)
    check(equal, [0, 1, 2], typical_p=0.5)


def test_typical_p_beside_an_impossible_token() -> None:
    logits = np.array([1, *[0] * 10, -np.inf], np.float32)
    check(logits, [1, 2, 3], typical_p=0.2)  # the likeliest is less typical than the ten others


def test_xtc_leaves_min_keep_or_does_nothing() -> None:
    """And something possible."""
    logits = np.array([2, 2, 2, 0], np.float32)
    check(logits, [2, 3], xtc_probability=1.0, min_keep=2)
    check(logits, [0, 1, 2, 3], xtc_probability=1.0, min_keep=3)
    logits = np.array([2, 1, -math.inf], np.float32)
    assert build(3, xtc_probability=1.0, xtc_threshold=0.0).apply(logits).selected == 1


def test_xtc_happens_with_its_probability() -> None:
    chain = build(3, xtc_probability=0.3, xtc_threshold=0.2)
    logits = np.array([1.0, 0.9, -1.0], np.float32)
    hits = sum(len(chain.apply(logits)) < 3 for _ in range(2000))
    assert scipy.stats.binomtest(hits, 2000, 0.3).pvalue > 0.01


@pytest.mark.parametrize("cold", [0.0, 1e-30, 1e-300, 1e-6])
def test_no_temperature_is_greedy(cold: float) -> None:
    assert build(len(LARGE), temperature=cold).sample(LARGE) == LARGE.argmax()


def test_penalties_after_a_filter() -> None:
    context = SamplerContext(len(LARGE), seed=1)
    params = {"top_k": 3, "presence_penalty": 50.0}
    chain = Chain.build(SAMPLERS, ["top_k", "penalties", "greedy"], params, context)
    first, second = np.argsort(-LARGE)[:2]
    assert chain.sample(LARGE) == first
    chain.accept(int(first))
    chain.accept(int(np.argmin(LARGE)))
    assert chain.sample(LARGE) == second


def test_ignore_eos() -> None:
    class Tokenizer:
        eog = frozenset({0, 2})

    logits = np.array([9, 1, 8, 2], np.float32)
    assert build(4, tokenizer=Tokenizer(), ignore_eos=True, temperature=0.0).sample(logits) == 3
    with pytest.raises(RequestError, match="ignore_eos requires a tokenizer"):
        build(4, ignore_eos=True)


@pytest.mark.parametrize(
    ("bias", "message"),
    [
        ({50: 1.0}, r"token 50 is not in the vocabulary \(0 to 49\)"),
        ({-1: 1.0}, "token -1"),
        ({3: math.nan}, r"logit_bias must be a mapping of token ids to numbers, not {3: nan}"),
        ({3: math.inf}, "not inf"),
    ],
)
def test_wrong_bias(bias: dict[int, float], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        build(50, logit_bias=bias)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_all_tokens_forbidden(temperature: float) -> None:
    chain = build(3, logit_bias=dict.fromkeys(range(3), -math.inf), temperature=temperature)
    with pytest.raises(RequestError, match="no token to choose"):
        chain.sample(np.zeros(3, np.float32))


@pytest.mark.parametrize("params", [{}, {"temperature": 0.0}, {"mirostat": 1}, {"mirostat": 2}, {"top_p": 0.5}])
def test_a_vocabulary_of_one(params: dict[str, Any]) -> None:
    assert build(1, **params).sample(np.array([-7], np.float32)) == 0


NEUTRAL_OR_NOT: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("typical_p", "top_p", "min_p", "xtc_probability", "xtc_threshold"), st.floats(0, 1)),
    **dict.fromkeys(("dry_multiplier", "dynatemp_range"), st.floats(0, 2)),
}
NEUTRAL_OR_NOT |= {"repeat_penalty": st.floats(0.5, 2), "frequency_penalty": st.floats(-2, 2)}
NEUTRAL_OR_NOT |= {"dry_base": st.floats(1, 4), "dry_allowed_length": st.integers(0, 3)}
NEUTRAL_OR_NOT |= {"dry_penalty_last_n": st.integers(0, 99), "top_k": st.integers(-1, 400)}
NEUTRAL_OR_NOT |= {"top_n_sigma": st.floats(-1, 4), "min_keep": st.integers(0, 5), "temperature": st.floats(0, 5)}
NEUTRAL_OR_NOT |= {"mirostat": st.integers(0, 2), "mirostat_tau": st.floats(0, 10)}


@settings(deadline=None, max_examples=300)
@given(
    logits=arrays(np.float32, st.integers(1, 60), elements=st.floats(-60, 60, width=32) | st.just(-math.inf)),
    params=st.fixed_dictionaries({}, optional=NEUTRAL_OR_NOT),
    history=st.lists(st.integers(0, 7), max_size=30),
)
def test_any_parameters_leave_a_candidate(logits: np.ndarray, params: dict[str, Any], history: list[int]) -> None:
    logits[0] = 1.0
    chain = build(len(logits), **params)
    for token in history:
        chain.accept(token % len(logits))
    for _ in range(3):
        candidates = chain.apply(logits)
        assert len(set(candidates.ids.tolist())) == len(candidates) > 0
        assert candidates.probabilities().sum() == pytest.approx(1, abs=1e-5)
        assert not candidates.sorted or (np.diff(candidates.logits[np.isfinite(candidates.logits)]) <= 0).all()
        assert candidates.selected in candidates.ids
        assert logits[candidates.selected] > -math.inf
        chain.accept(candidates.selected)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name", ["frequency_penalty", "presence_penalty", "repeat_penalty", "temperature"])
@pytest.mark.parametrize("value", [1e308, 1e38, 1e-308, -1e308])
def test_numbers_beyond_float32_are_refused_or_mean_the_most_there_is(name: str, value: float) -> None:
    """They leave no line in a server's log."""
    try:
        chosen, refused = build(len(SMALL), [3, 3, 4], **{name: value}).apply(SMALL.copy()).selected, name
    except RequestError as error:
        chosen, refused = 0, str(error)
    assert 0 <= chosen < len(SMALL)
    assert re.search(f"{name}|check logit_bias, the penalties and temperature", refused)
