"""Temperature, constant or depending on the entropy."""

import math
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from annotated_types import Ge

from pumice.plugin import Candidates
from pumice.plugin.unstable import Pick, Plan, PlannedSampler

TOO_COLD = 1e-30
"""Lower bound of temperatures: below it, scaled logits overflow float32, and only the best can be chosen."""


@dataclass
class Temperature(PlannedSampler):
    """Divide the logits by ``temperature``; 0 keeps only the highest logit.

    If ``dynatemp_range`` is above 0, the temperature follows the normalized entropy H of the n candidates,
    H = -sum(p log p) / log n, as in https://github.com/ggml-org/llama.cpp/issues/3483:

        low + (high - low) * H ** dynatemp_exponent     low, high = temperature -+ dynatemp_range, low >= 0
    """

    temperature: Annotated[float, Ge(0)] = 0.8
    dynatemp_range: Annotated[float, Ge(0)] = 0.0
    dynatemp_exponent: Annotated[float, Ge(0)] = 1.0

    def plan(self) -> Plan:
        return Plan(neutral=self.temperature == 1 and self.dynatemp_range == 0, keeps_best=True, pick=self._pick)

    def _pick(self, pick: Pick) -> Pick | None:
        if self.dynatemp_range > 0:
            return None
        return replace(pick, temperature=self.temperature if self.temperature >= TOO_COLD else 0.0)

    @np.errstate(over="ignore")  # a request may ask for any number
    def apply(self, candidates: Candidates) -> None:
        if len(candidates) == 1:
            return
        temperature = self._dynamic(candidates) if self.dynatemp_range > 0 else self.temperature
        if temperature < TOO_COLD:
            candidates.keep_top(1)
        else:
            candidates.logits /= np.float32(temperature)

    def _dynamic(self, candidates: Candidates) -> float:
        low = max(0.0, self.temperature - self.dynatemp_range)
        high = self.temperature + self.dynatemp_range
        p = candidates.probabilities()
        p = p[p > 0]
        entropy = -float(np.dot(p, np.log(p))) / math.log(len(candidates))
        return low + (high - low) * max(entropy, 0.0) ** self.dynatemp_exponent
