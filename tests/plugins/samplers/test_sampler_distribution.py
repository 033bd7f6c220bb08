"""Many draws: frequencies against probabilities (chi-square), seeds, Mirostat's target, and the time a token takes."""

import math
import statistics
from typing import Any

import numpy as np
import pytest

from imported_late import Late
from pumice.sampler import Candidates, Chain, SamplerContext
from pumice_samplers import SAMPLERS
from pumice_samplers.select import draw
from waiting import seconds_of

scipy = Late("scipy")

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
N_VOCAB = 128_256


def build(n_vocab: int, **params: Any) -> Chain:
    return Chain.build(SAMPLERS, list(SAMPLERS), {"seed": 42} | params, SamplerContext(n_vocab))


def fits(tokens: list[int], probabilities: np.ndarray) -> bool:
    """Whether tokens look drawn with these probabilities: chi-square, at the 0.1 % level; none impossible."""
    counts = np.bincount(tokens, minlength=len(probabilities))
    possible = probabilities > 0
    assert not counts[~possible].any()
    return scipy.stats.chisquare(counts[possible], probabilities[possible] * len(tokens)).pvalue > 0.001


ALL = range(8)


@pytest.mark.parametrize(
    ("params", "kept"), [({}, ALL), ({"top_k": 3}, [1, 6, 2]), ({"temperature": 2.0}, ALL), ({"min_p": 0.5}, [1, 6])]
)
def test_dist_draws_with_the_probabilities(params: dict[str, Any], kept: Any) -> None:
    logits = np.array([0, 2, 1, 0.5, -1, -np.inf, 1.5, 0.2], np.float32)
    masked = np.full(8, -np.inf)
    masked[list(kept)] = logits[list(kept)] / params.get("temperature", 1.0)
    chain = build(8, **OFF | params)
    assert fits([chain.sample(logits) for _ in range(8000)], scipy.special.softmax(masked))


def test_draw_spans_blocks() -> None:
    """Tokens far apart in a vocabulary, equal in probability, among many impossible ones."""
    logits = np.full(5000, -np.inf, np.float32)
    spots = [0, 1023, 1024, 2500, 2501, 4999]
    logits[spots] = 0
    rng = np.random.default_rng(0)
    drawn = [draw(Candidates(logits), rng) for _ in range(4000)]
    assert fits([spots.index(token) for token in drawn], np.full(6, 1 / 6))


@pytest.mark.parametrize("number", [0.0, 0.5, 1 - 2**-53])
def test_draw_never_gives_an_impossible_token(number: float) -> None:
    class Rng:
        def random(self) -> float:
            return number

    logits = np.full(3000, -np.inf, np.float32)
    logits[[1100, 1200, 1300]] = [0.1, 0.3, 0.7]
    assert draw(Candidates(logits), Rng()) in {1100, 1200, 1300}  # type: ignore[arg-type]


def test_same_seed_same_tokens_through_the_whole_chain() -> None:
    logits = np.random.default_rng(3).normal(0, 2, (30, 500)).astype(np.float32)

    def tokens(seed: int) -> list[int]:
        chain = build(500, seed=seed, xtc_probability=0.5, repeat_penalty=1.2, dry_multiplier=0.5)
        result = []
        for row in logits:
            result.append(chain.sample(row))
            chain.accept(result[-1])
        return result

    assert tokens(1) == tokens(1) != tokens(2)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [2.0, 4.0])
def test_mirostat_holds_the_surprise_at_its_target(version: int, tau: float) -> None:
    """On a Zipf distribution, which the paper assumes."""
    logits = (-1.1 * np.log(np.arange(1, 5001))).astype(np.float32)
    chain = build(5000, mirostat=version, mirostat_tau=tau, temperature=1.0)
    surprises = []
    for _ in range(3000):
        candidates = chain.apply(logits)
        at = candidates.ids.tolist().index(candidates.selected)
        surprises.append(-math.log2(candidates.probabilities()[at]))
    assert statistics.fmean(surprises[500:]) == pytest.approx(tau, abs=0.1)


@pytest.mark.parametrize(
    "params",
    [{}, {"repeat_penalty": 1.1, "frequency_penalty": 0.1, "dry_multiplier": 0.8}, {"temperature": 0}],
    ids=["default", "penalties", "greedy"],
)
def test_a_token_takes_under_a_millisecond(params: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, N_VOCAB).astype(np.float32)
    chain = build(N_VOCAB, **params)
    for token in rng.integers(0, 50, 200).tolist():
        chain.accept(token)

    def ten_tokens() -> None:
        for _ in range(10):
            chain.accept(chain.sample(logits))

    ten_tokens()
    assert seconds_of(ten_tokens, 10e-3) < 10e-3
