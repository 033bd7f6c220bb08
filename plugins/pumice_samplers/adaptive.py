"""Adaptive-p: choose tokens whose probability is near a target, on average over the text."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Interval, Le

from pumice.plugin import Candidates, SamplerContext, Selector
from pumice.plugin.unstable import Plan, PlannedSampler
from pumice_samplers.select import draw

_WIDTH = np.float32(0.3)  # distance from the target, in probability, at which the curve turns from a square to a line
_PEAK = np.float32(5.0)  # logit of a candidate whose probability is the target
_SLOPE = np.float32(10.0)  # decrease of the logit for each width of distance, far from the target


@dataclass
class AdaptiveP(PlannedSampler, Selector):
    """Draw a candidate by its distance from a target probability, which is corrected by what was drawn before.

    By MrJackSpade and ddh0 (https://github.com/ggml-org/llama.cpp/pull/17927). With d = |p - target| / width, the logit
    of a candidate of probability p is peak - slope * d^2 / (1 + d). The target of a token is twice ``adaptive_target``
    less the mean probability of the tokens before, a moving average. Truncate mildly before it, as by min_p alone.

    Attributes:
        adaptive_target: probability to hold, from 0 to 1; below 0: off.
        adaptive_decay: factor of the moving average for each token.
    """

    adaptive_target: Annotated[float, Le(1)] = -1.0
    adaptive_decay: Annotated[float, Interval(ge=0, le=0.99)] = 0.9

    def plan(self) -> Plan:
        return Plan(neutral=self.adaptive_target < 0)

    def start(self, context: SamplerContext) -> None:
        self._rng = context.rng
        self._weight = 1 / (1 - self.adaptive_decay)  # as of an infinite text that held the target
        self._sum = self.adaptive_target * self._weight

    def apply(self, candidates: Candidates) -> None:
        probabilities = candidates.probabilities()
        target = np.float32(min(1.0, max(0.0, 2 * self.adaptive_target - self._sum / self._weight)))
        distance = np.abs(probabilities - target) / _WIDTH
        curve = _PEAK - _SLOPE * distance * distance / (1 + distance)
        candidates.logits = np.where(np.isneginf(candidates.logits), candidates.logits, curve)
        candidates.sorted = False
        choice = draw(candidates, self._rng)
        self._sum = float(probabilities[choice]) + self.adaptive_decay * self._sum
        self._weight = 1 + self.adaptive_decay * self._weight
        candidates.select(choice)
