"""Penalties on recent tokens."""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt

from pumice.plugin import Candidates, SamplerContext
from pumice.plugin.unstable import Pick, Plan, PlannedSampler
from pumice_samplers.history import History


@dataclass
class Penalties(PlannedSampler):
    """Repetition penalty (Keskar et al. 2019, arXiv:1909.05858), frequency and presence penalty (OpenAI API).

    A token that occurred ``count`` times in the last ``repeat_last_n`` tokens, prompt included, gets

        logit / repeat_penalty if logit > 0 else logit * repeat_penalty
        - count * frequency_penalty - presence_penalty

    The paper only divides, which would make a token with a negative logit more probable.

    Attributes:
        repeat_penalty: above 1 discourages repetition, below 1 encourages it; 1: off.
        repeat_last_n: number of latest tokens to consider; 0: no penalty.
        frequency_penalty: value subtracted per occurrence; 0: off.
        presence_penalty: value subtracted once; 0: off.
    """

    repeat_penalty: Annotated[float, Gt(0)] = 1.0
    repeat_last_n: Annotated[int, Ge(0)] = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0

    def plan(self) -> Plan:
        penalties = (self.repeat_penalty, self.frequency_penalty, self.presence_penalty)
        return Plan(neutral=self.repeat_last_n == 0 or penalties == (1.0, 0.0, 0.0), pick=self._pick)

    def _pick(self, pick: Pick) -> Pick | None:
        penalties = (self.repeat_penalty, self.frequency_penalty, self.presence_penalty)
        penalized = Pick(0, 1.0, 0.0, 1.0, (), self.repeat_last_n, *penalties)
        if pick.only_biases:
            return replace(penalized, biases=pick.biases)
        return None if penalized.raises else pick.guessed()

    def start(self, context: SamplerContext) -> None:
        self._history = History()

    def accept(self, token: int) -> None:
        self._history.append(token)

    @np.errstate(over="ignore", divide="ignore")  # a request may ask for any number: the chain refuses infinite logits
    def apply(self, candidates: Candidates) -> None:
        tokens, counts = np.unique(self._history.last(self.repeat_last_n), return_counts=True)
        indices = candidates.positions(tokens)
        indices, counts = indices[indices >= 0], counts[indices >= 0].astype(np.float32)
        logits = candidates.logits[indices]
        logits = np.where(logits > 0, logits / self.repeat_penalty, logits * self.repeat_penalty)
        candidates.logits[indices] = logits - counts * self.frequency_penalty - self.presence_penalty
        candidates.sorted = False
