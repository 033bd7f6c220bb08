"""Mirostat (Basu et al. 2020, arXiv:2007.14966): truncation that keeps the surprise of the text near a target."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Interval
from numpy.typing import NDArray

from pumice.plugin import Candidates, Sampler, SamplerContext, Selector
from pumice.plugin.unstable import Plan, PlannedSampler
from pumice_samplers.select import draw

_SLOPE_TOKENS = 100


@dataclass
class Mirostat(PlannedSampler, Selector):
    """Drop candidates with a surprise above ``mu`` bits, draw one of the others, and correct ``mu`` by its surprise.

    Replaces the truncating samplers. Penalties still apply if they are set.

    Attributes:
        mirostat: 0: off; 1: the paper's first version, which estimates the tail by Zipf's law to find a
            top-k; 2: the second, which compares each candidate's surprise with ``mu``.
        mirostat_tau: target surprise in bits; ``mu`` starts at twice this.
        mirostat_eta: learning rate of ``mu``.
    """

    mirostat: Annotated[int, Interval(ge=0, le=2)] = 0
    mirostat_tau: Annotated[float, Ge(0)] = 5.0
    mirostat_eta: Annotated[float, Ge(0)] = 0.1

    def plan(self) -> Plan:
        return Plan(neutral=self.mirostat == 0)

    def relevant(self, before: Sequence[Sampler]) -> Sequence[Sampler]:
        return [sampler for sampler in before if not Plan.of(sampler).truncates]

    def start(self, context: SamplerContext) -> None:
        self._rng = context.rng
        self._n_vocab = context.n_vocab
        self.mu = 2 * self.mirostat_tau

    def apply(self, candidates: Candidates) -> None:
        if self.mirostat == 1:
            self._keep_estimated(candidates)
        else:
            self._keep_unsurprising(candidates)
        candidates.keep_top(len(candidates))  # llama.cpp's order, so equal random numbers draw equal tokens
        choice = draw(candidates, self._rng) if len(candidates) > 1 else 0
        surprise = -math.log2(candidates.probabilities()[choice])
        self.mu -= self.mirostat_eta * (surprise - self.mirostat_tau)
        candidates.select(choice)

    def _keep_estimated(self, candidates: Candidates) -> None:
        top = candidates.logits[candidates.top(_SLOPE_TOKENS)]
        exponent = zipf_exponent(top[top > -math.inf])
        candidates.keep_top(zipf_rank(exponent, self.mu, self._n_vocab))

    def _keep_unsurprising(self, candidates: Candidates) -> None:
        total = math.log(float(candidates.weights().sum()))
        lowest = np.float32(candidates.peak() + total - self.mu * math.log(2))
        if candidates.peak() < lowest:
            candidates.keep_top(1)
        else:
            candidates.keep(candidates.logits >= lowest)


def zipf_exponent(logits: NDArray[np.float32]) -> float:
    """Return the paper's estimate of s in p(rank) ~ rank^-s from the highest logits, sorted; infinity for one."""
    if len(logits) < 2:
        return math.inf
    ranks = np.arange(1, len(logits) + 1, dtype=np.float64)
    steps = np.diff(np.log(ranks))
    return float(np.dot(steps, -np.diff(logits.astype(np.float64))) / np.dot(steps, steps))


def zipf_rank(exponent: float, mu: float, n_vocab: int) -> int:
    """Return the paper's k, at least 1, such that Zipf's law up to rank k has a mean surprise of ``mu`` bits."""
    if math.isinf(exponent):
        return 1
    if exponent == 0:
        return n_vocab
    excess = exponent - 1
    try:
        scale = excess / -math.expm1(-excess * math.log(n_vocab)) if excess else 1 / math.log(n_vocab)
        k = (scale * 2**mu) ** (1 / exponent)
    except (OverflowError, ZeroDivisionError):
        return n_vocab
    return int(max(1, min(k, n_vocab)))
