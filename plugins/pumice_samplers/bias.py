"""Biases on the logits of single tokens."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from pumice.plugin import Candidates, RequestError, SamplerContext
from pumice.plugin.unstable import Pick, Plan, PlannedSampler, show_value


@dataclass
class LogitBias(PlannedSampler):
    """Add to the logits of single tokens.

    Attributes:
        logit_bias: token id -> value to add to its logit; -inf excludes the token.
        ignore_eos: exclude tokens that end the generation.
    """

    logit_bias: dict[int, float] = field(default_factory=dict)
    ignore_eos: bool = False

    def plan(self) -> Plan:
        return Plan(neutral=not self.logit_bias and not self.ignore_eos, pick=self._pick)

    def start(self, context: SamplerContext) -> None:
        bias = dict(self.logit_bias)
        for token, value in bias.items():
            if not 0 <= token < context.n_vocab:
                shown = show_value(token)
                raise RequestError(f"logit_bias: token {shown} is not in the vocabulary (0 to {context.n_vocab - 1})")
            if math.isnan(value) or value == math.inf:
                raise RequestError(f"logit_bias[{token}] must be a finite number or -inf, not {value}")
        if self.ignore_eos:
            if context.tokenizer is None:
                raise RequestError("ignore_eos requires a tokenizer, which this model lacks; use logit_bias instead")
            bias |= dict.fromkeys(context.tokenizer.eog, -math.inf)
        self._tokens = np.array(list(bias), np.int64)
        self._values = np.array(list(bias.values()), np.float32)

    def _pick(self, pick: Pick) -> Pick | None:
        if not pick.only_biases:
            return pick.guessed() if (self._values <= 0).all() else None
        biases = dict(pick.biases)
        for token, value in zip(self._tokens.tolist(), self._values.tolist(), strict=True):
            biases[token] = biases.get(token, 0.0) + value
        return replace(pick, biases=tuple(biases.items()))

    def apply(self, candidates: Candidates) -> None:
        indices = candidates.positions(self._tokens)
        is_candidate = indices >= 0
        candidates.logits[indices[is_candidate]] += self._values[is_candidate]
        candidates.sorted = False
