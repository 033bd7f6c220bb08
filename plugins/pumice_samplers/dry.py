"""DRY, "don't repeat yourself": a penalty on tokens that would extend a repetition.

By p-e-w, https://github.com/oobabooga/text-generation-webui/pull/5677.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from pumice.plugin import Candidates, Pick, Sampler, SamplerContext
from pumice_samplers.breakers import Breakers
from pumice_samplers.history import History

_LOG_FLOAT32_MAX = 88.7228391


@dataclass
class Dry(Sampler):
    """If the last n tokens occurred before, then the token that followed them there loses

        dry_multiplier * dry_base ** (n - dry_allowed_length)        if n >= dry_allowed_length

    for the greatest such n. A match does not reach back past a sequence breaker, and a token that contains
    a breaker is not penalised.

    Attributes:
        dry_multiplier: 0: off.
        dry_base: growth with each token of the match.
        dry_allowed_length: matches shorter than this go unpunished.
        dry_penalty_last_n: tokens to look back, prompt included; 0: no penalty.
        dry_sequence_breakers: strings; without a tokenizer they are ignored.
    """

    dry_multiplier: Annotated[float, Ge(0)] = 0.0
    dry_base: Annotated[float, Ge(1)] = 1.75
    dry_allowed_length: Annotated[int, Ge(0)] = 2
    dry_penalty_last_n: Annotated[int, Ge(0)] = 64
    dry_sequence_breakers: list[str] = field(default_factory=lambda: ["\n", ":", '"', "*"])

    @property
    def is_neutral(self) -> bool:
        return self.dry_multiplier == 0 or self.dry_penalty_last_n == 0

    @property
    def lowers(self) -> bool:
        return True

    def start(self, context: SamplerContext) -> None:
        self._history = History()
        self._breakers = Breakers.of(self.dry_sequence_breakers, context.tokenizer, context.n_vocab)

    def accept(self, token: int) -> None:
        self._history.append(token)

    def guess(self, pick: Pick) -> Pick | None:
        return replace(pick, restricted=True) if pick.only_adjusts else super().guess(pick)

    def biases(self) -> Sequence[tuple[int, float]]:
        tokens, penalties = self._penalties()
        return list(zip(tokens.tolist(), (-penalties).tolist(), strict=True))

    def apply(self, candidates: Candidates) -> None:
        tokens, penalties = self._penalties()
        at = candidates.positions(tokens)
        here = at >= 0
        candidates.logits[at[here]] -= penalties[here]
        candidates.sorted = False

    def _penalties(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Tokens that would extend a repetition, and what each loses."""
        tokens = self._history.last(self.dry_penalty_last_n)
        reach = self._breakers.distance(tokens)
        if len(tokens) <= self.dry_allowed_length or reach < self.dry_allowed_length:
            return np.empty(0, np.int32), np.empty(0, np.float32)
        matches = match_lengths(tokens, min(reach, self._longest))
        repeated = matches >= self.dry_allowed_length
        followers, which = np.unique(tokens[1:][repeated], return_inverse=True)
        lengths = np.zeros(len(followers), np.int64)
        np.maximum.at(lengths, which, matches[repeated])

        hit = ~self._breakers.single[followers]
        growth = self.dry_base ** (lengths[hit] - self.dry_allowed_length).astype(np.float64)
        return followers[hit], (self.dry_multiplier * growth).astype(np.float32)

    @property
    def _longest(self) -> int:
        """The longest match worth telling apart: the penalty stays within float32."""
        growth = math.log(self.dry_base)
        return self.dry_allowed_length + int(_LOG_FLOAT32_MAX / growth) if growth > 1e-6 else self.dry_penalty_last_n


def match_lengths(tokens: NDArray[np.int32], limit: int) -> NDArray[np.int64]:
    """For each i < n - 1, how many tokens ending at i equal those ending at n - 1, at most ``limit``."""
    last = len(tokens) - 1
    lengths = np.zeros(last, np.int64)
    ends: NDArray[np.intp] = np.arange(last)
    for length in range(limit):
        ends = ends[ends >= length]
        ends = ends[tokens[ends - length] == tokens[last - length]]
        if not len(ends):
            break
        lengths[ends] += 1
    return lengths
