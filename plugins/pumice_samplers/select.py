"""Choosing one of the candidates."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from pumice.plugin import Candidates, Plan, PlannedSampler, Sampler, SamplerContext, Selector
from pumice_samplers.temperature import TOO_COLD

_BLOCK = 1024


@dataclass
class Greedy(PlannedSampler, Selector):
    """The highest logit, of equal ones the lowest token id. Active at temperature 0."""

    temperature: Annotated[float, Ge(0)] = 0.8
    dynatemp_range: float = 0.0

    def plan(self) -> Plan:
        neutral = self.temperature >= TOO_COLD or self.dynatemp_range > 0
        return Plan(neutral, pick=lambda pick: replace(pick, top_k=pick.top_k or 1, temperature=0.0))

    def relevant(self, before: Sequence[Sampler]) -> Sequence[Sampler]:
        """Not the last ones that cannot change which candidate is best."""
        n = len(before)
        while n and Plan.of(before[n - 1]).keeps_best:
            n -= 1
        return before[:n]

    def apply(self, candidates: Candidates) -> None:
        candidates.peak()
        candidates.select(int(candidates.logits.argmax()))


@dataclass
class Dist(PlannedSampler, Selector):
    """At random, each candidate with its probability.

    Attributes:
        seed: of the chain's random numbers, 0 or more; -1: a fresh one.
        rng: their kind: "pcg64", or "mt19937", with which a seed gives the choices of llama.cpp.
    """

    seed: int = -1
    rng: str = "pcg64"

    def plan(self) -> Plan:
        return Plan(pick=lambda pick: pick)

    def start(self, context: SamplerContext) -> None:
        self._rng = context.rng

    def apply(self, candidates: Candidates) -> None:
        candidates.select(draw(candidates, self._rng))


def draw(candidates: Candidates, rng: np.random.Generator) -> int:
    """The index of a candidate, chosen with its probability. Takes one number from ``rng``."""
    weights = candidates.weights()
    starts = np.arange(0, len(weights), _BLOCK)
    # First a block, then a candidate in it: a running sum over a whole vocabulary is what would take long.
    blocks = np.cumsum(np.add.reduceat(weights, starts, dtype=np.float64))
    target = rng.random() * blocks[-1]
    block = _first_above(blocks, target)
    inside = np.cumsum(weights[block * _BLOCK : (block + 1) * _BLOCK], dtype=np.float64)
    before = blocks[block - 1] if block else 0.0
    return block * _BLOCK + _first_above(inside, target - before)


def _first_above(sums: NDArray[np.float64], target: float) -> int:
    """The first of some running sums above ``target``; if rounding left none, the last that added anything."""
    return min(int(np.searchsorted(sums, target, side="right")), int(np.searchsorted(sums, sums[-1])))
