"""Truncation of the candidates. Probabilities are relative to the candidates that a sampler receives."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Interval
from numpy.typing import NDArray

from pumice.plugin import Candidates, SamplerContext
from pumice.plugin.unstable import Pick, Plan, PlannedSampler

Probability = Annotated[float, Interval(ge=0, le=1)]


@dataclass
class TopK(PlannedSampler):
    """Keep the ``top_k`` most probable candidates (Fan et al. 2018, arXiv:1805.04833); 0 or -1: all."""

    top_k: Annotated[int, Ge(-1)] = 40

    def plan(self) -> Plan:
        return Plan(self.top_k <= 0, truncates=True, keeps_best=True, pick=self._pick)

    def _pick(self, pick: Pick) -> Pick | None:
        return replace(pick, top_k=self.top_k) if pick.only_adjusts else None

    def apply(self, candidates: Candidates) -> None:
        if self.top_k < len(candidates):
            candidates.keep_top(self.top_k)


@dataclass
class TopP(PlannedSampler):
    """Nucleus sampling (Holtzman et al. 2019, arXiv:1904.09751): keep the fewest candidates that reach ``top_p``.

    At least ``min_keep`` remain; ``top_p`` 1: all.
    """

    top_p: Probability = 0.95
    min_keep: Annotated[int, Ge(0)] = 0

    def plan(self) -> Plan:
        return Plan(self.top_p >= 1, truncates=True, keeps_best=True, pick=self._pick)

    def _pick(self, pick: Pick) -> Pick | None:
        return replace(pick, top_p=self.top_p) if pick.only_truncates and not self.min_keep else None

    def apply(self, candidates: Candidates) -> None:
        best = _fewest(candidates, candidates.probabilities(), self.top_p, self.min_keep, "left")
        candidates.keep(best)
        candidates.sorted = True


@dataclass
class MinP(PlannedSampler):
    """Keep candidates with at least ``min_p`` times the highest probability (Nguyen et al. 2024, arXiv:2407.01082).

    At least ``min_keep`` remain; ``min_p`` 0: all.
    """

    min_p: Probability = 0.05
    min_keep: Annotated[int, Ge(0)] = 0

    def plan(self) -> Plan:
        return Plan(self.min_p <= 0, truncates=True, keeps_best=True, pick=self._pick)

    def _pick(self, pick: Pick) -> Pick | None:
        return replace(pick, min_p=self.min_p) if pick.temperature == 1 and not self.min_keep else None

    def apply(self, candidates: Candidates) -> None:
        keep = candidates.logits >= np.float32(candidates.peak() + math.log(self.min_p))
        if np.count_nonzero(keep) < self.min_keep:
            candidates.keep_top(self.min_keep)
        else:
            candidates.keep(keep)


@dataclass
class TopNSigma(PlannedSampler):
    """Top-nσ: keep candidates within n standard deviations of the highest logit (Tang et al. 2024, arXiv:2411.07641).

    The others remain as candidates with logit -inf, as in llama.cpp: dynamic temperature counts them. 0 or less: all.
    """

    top_n_sigma: float = -1.0

    def plan(self) -> Plan:
        return Plan(self.top_n_sigma <= 0, truncates=True, keeps_best=True)

    def apply(self, candidates: Candidates) -> None:
        logits = candidates.logits
        finite = logits[logits > -math.inf]
        lowest = candidates.peak() - self.top_n_sigma * float(finite.std())
        logits[logits < np.float32(lowest)] = -math.inf


@dataclass
class TypicalP(PlannedSampler):
    """Locally typical sampling (Meister et al. 2022, arXiv:2202.00666).

    Keep the fewest candidates that together exceed ``typical_p``, in order of the distance of their surprise, -log(p),
    from the entropy. At least ``min_keep`` remain; ``typical_p`` 1: all.
    """

    typical_p: Probability = 1.0
    min_keep: Annotated[int, Ge(0)] = 0

    def plan(self) -> Plan:
        return Plan(self.typical_p >= 1, truncates=True)

    def apply(self, candidates: Candidates) -> None:
        weights = candidates.weights()
        total = weights.sum()
        probabilities = weights / total
        surprise = candidates.peak() + np.log(total) - candidates.logits
        entropy = np.dot(probabilities, np.where(probabilities > 0, surprise, 0))
        typical = Candidates(-np.abs(surprise - entropy))
        candidates.keep(_fewest(typical, probabilities, self.typical_p, self.min_keep, "right"))


@dataclass
class Xtc(PlannedSampler):
    """Exclude top choices: of the candidates with at least ``xtc_threshold``, keep only the least probable.

    By p-e-w, https://github.com/oobabooga/text-generation-webui/pull/6335. Applied with the probability
    ``xtc_probability`` at each step, and only if ``min_keep`` candidates remain.
    """

    xtc_probability: Probability = 0.0
    xtc_threshold: Probability = 0.1
    min_keep: Annotated[int, Ge(0)] = 0

    def plan(self) -> Plan:
        return Plan(self.xtc_probability <= 0 or self.xtc_threshold > 0.5, truncates=True)

    def start(self, context: SamplerContext) -> None:
        self._rng = context.filter_rng()

    def apply(self, candidates: Candidates) -> None:
        if len(candidates) < 2 or self._rng.random(dtype=np.float32) > self.xtc_probability:
            return
        possible = candidates.logits > -math.inf  # with a threshold of 0 an excluded candidate could remain alone
        likely = np.flatnonzero(possible & (candidates.probabilities() >= self.xtc_threshold))
        if len(likely) < 2 or len(candidates) - len(likely) + 1 < self.min_keep:
            return
        keep = np.ones(len(candidates), bool)
        keep[likely] = False
        keep[likely[_last_lowest(candidates.logits[likely])]] = True
        candidates.keep(keep)


def _last_lowest(values: NDArray[np.float32]) -> int:
    """Return the index that would be last if the values were sorted in descending order."""
    return len(values) - 1 - int(values[::-1].argmin())


def _fewest(
    ranking: Candidates,
    probabilities: NDArray[np.float32],
    mass: float,
    min_keep: int,
    side: Literal["left", "right"],
) -> NDArray[np.intp]:
    """Return the first indices of a ranking that together reach ``mass`` (side "left") or exceed it ("right").

    A few candidates usually hold most of the probability, so the ranking is extended step by step as needed.
    """
    k = max(256, min_keep)
    while True:
        best = ranking.top(k)
        sums = np.cumsum(probabilities[best], dtype=np.float64)
        n = int(np.searchsorted(sums, mass, side=side)) + 1
        if n <= k or k >= len(ranking):
            return best[: max(n, min_keep)]
        k *= 4
