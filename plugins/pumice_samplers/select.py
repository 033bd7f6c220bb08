"""Selection of one candidate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from pumice.plugin import Candidates, Sampler, SamplerContext, Selector
from pumice.plugin.unstable import Plan, PlannedSampler
from pumice_samplers.temperature import TOO_COLD

_BLOCK = 1024


@dataclass
class Greedy(PlannedSampler, Selector):
    """Select the highest logit, or the lowest token id of equal ones. Active at temperature 0."""

    temperature: Annotated[float, Ge(0)] = 0.8
    dynatemp_range: float = 0.0

    def plan(self) -> Plan:
        neutral = self.temperature >= TOO_COLD or self.dynatemp_range > 0
        return Plan(neutral, pick=lambda pick: replace(pick, top_k=pick.top_k or 1, temperature=0.0))

    def relevant(self, before: Sequence[Sampler]) -> Sequence[Sampler]:
        """Drop trailing samplers that cannot change the best candidate."""
        n = len(before)
        while n and Plan.of(before[n - 1]).keeps_best:
            n -= 1
        return before[:n]

    def apply(self, candidates: Candidates) -> None:
        candidates.peak()
        candidates.select(int(candidates.logits.argmax()))


@dataclass
class Dist(PlannedSampler, Selector):
    """Draw a candidate at random by its probability.

    Attributes:
        seed: seed of the chain's random numbers, at least 0; -1: a fresh one.
        rng: random number generator: "pcg64", or "mt19937", with which a seed gives llama.cpp's choices.
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
    """Draw the index of a candidate by its probability. Takes one number from ``rng``."""
    weights = candidates.weights()
    starts = np.arange(0, len(weights), _BLOCK)
    # Draw a block, then a candidate in it: a running sum over the whole vocabulary would dominate the time.
    blocks = np.cumsum(np.add.reduceat(weights, starts, dtype=np.float64))
    target = rng.random() * blocks[-1]
    block = _first_above(blocks, target)
    inside = np.cumsum(weights[block * _BLOCK : (block + 1) * _BLOCK], dtype=np.float64)
    before = blocks[block - 1] if block else 0.0
    return block * _BLOCK + _first_above(inside, target - before)


def _first_above(sums: NDArray[np.float64], target: float) -> int:
    """Return the first index of running sums above ``target``; if rounding leaves none, the last that increased."""
    return min(int(np.searchsorted(sums, target, side="right")), int(np.searchsorted(sums, sums[-1])))
