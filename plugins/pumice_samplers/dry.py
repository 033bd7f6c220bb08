"""DRY, "don't repeat yourself": a penalty on tokens that would extend a repetition.

By p-e-w, https://github.com/oobabooga/text-generation-webui/pull/5677.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from annotated_types import Ge, MaxLen
from numpy.typing import NDArray

from pumice.plugin import Candidates, Pick, Plan, PlannedSampler, SamplerContext
from pumice_samplers.breakers import Breakers, Breaks
from pumice_samplers.history import History

_LOG_FLOAT32_MAX = 88.7228391
_FEW = 64  # tokens, for which lengths follow from those before


@dataclass
class Dry(PlannedSampler):
    """If the last n tokens occurred before, then the token that followed them there loses

        dry_multiplier * dry_base ** (n - dry_allowed_length)        if n >= dry_allowed_length

    for the greatest such n. A match does not reach back past a sequence breaker, and a token that contains
    a breaker is not penalised.

    Attributes:
        dry_multiplier: 0: off.
        dry_base: growth with each token of the match.
        dry_allowed_length: matches shorter than this go unpunished.
        dry_penalty_last_n: tokens to look back, prompt included; 0: no penalty.
        dry_sequence_breakers: up to 64 strings of 40 characters; without a tokenizer they are ignored.
    """

    dry_multiplier: Annotated[float, Ge(0)] = 0.0
    dry_base: Annotated[float, Ge(1)] = 1.75
    dry_allowed_length: Annotated[int, Ge(0)] = 2
    dry_penalty_last_n: Annotated[int, Ge(0)] = 64
    dry_sequence_breakers: Annotated[list[Annotated[str, MaxLen(40)]], MaxLen(64)] = field(
        default_factory=lambda: ["\n", ":", '"', "*"]
    )

    def plan(self) -> Plan:
        neutral = self.dry_multiplier == 0 or self.dry_penalty_last_n == 0
        return Plan(neutral, pick=self._pick, biases=self.biases)

    def start(self, context: SamplerContext) -> None:
        self._history = History()
        self._repeats = Repeats()
        self._breakers = Breakers(self.dry_sequence_breakers, context.tokenizer)
        self._breaks = Breaks(self._breakers)

    def accept(self, token: int) -> None:
        self._history.append(token)
        self._breaks.append(token)
        self._repeats.append()

    def _pick(self, pick: Pick) -> Pick:
        return replace(pick, restricted=True) if pick.only_adjusts else pick.guessed()

    def biases(self) -> Sequence[tuple[int, float]]:
        """The tokens that would extend a repetition, and what is added to their logits."""
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
        reach = self._breaks.distance(len(tokens))
        if len(tokens) <= self.dry_allowed_length or reach < self.dry_allowed_length:
            return np.empty(0, np.int32), np.empty(0, np.float32)
        matches = np.minimum(self._repeats.lengths(tokens), min(reach, self._longest, len(tokens)))
        repeated = matches >= self.dry_allowed_length
        longest = np.full(int(tokens.max()) + 1, -1, np.int32)  # of each token, in linear time
        np.maximum.at(longest, tokens[1:][repeated], matches[repeated])
        followers = np.flatnonzero(longest >= 0).astype(np.int32)
        lengths = longest[followers]
        hit = np.array([not self._breakers.is_one(token) for token in followers.tolist()], bool)
        growth = self.dry_base ** (lengths[hit] - self.dry_allowed_length).astype(np.float64)
        return followers[hit], (self.dry_multiplier * growth).astype(np.float32)

    @property
    def _longest(self) -> int:
        """The longest match worth telling apart: the penalty stays within float32."""
        growth = math.log(self.dry_base)
        return self.dry_allowed_length + int(_LOG_FLOAT32_MAX / growth) if growth > 1e-6 else self.dry_penalty_last_n


class Repeats:
    """How long the end of a sequence repeats what was before: lengths follow from those of the token before."""

    def __init__(self) -> None:
        self._lengths = np.empty(0, np.int32)  # for each token of the window but the last
        self._n_new = 0  # tokens since these lengths

    def append(self) -> None:
        """The sequence has one token more."""
        self._n_new += 1

    def lengths(self, tokens: NDArray[np.int32]) -> NDArray[np.int32]:
        """int32 [n - 1]: how many tokens that end at each of a sequence's last n equal those at its end."""
        n = len(tokens)
        if self._n_new > _FEW or self._n_new >= n or not len(self._lengths):
            self._lengths = match_lengths(tokens)
        else:
            for left in range(self._n_new - 1, -1, -1):
                last = n - 1 - left
                before = np.concatenate((np.zeros(1, np.int32), self._lengths))[-last:]
                self._lengths = np.where(tokens[:last] == tokens[last], before + 1, 0).astype(np.int32)
        self._n_new = 0
        return np.minimum(self._lengths, np.arange(1, n, dtype=np.int32))


def match_lengths(tokens: NDArray[np.int32]) -> NDArray[np.int32]:
    """int32 [n - 1]: how many tokens ending at each equal those ending at the last one.

    The Z-algorithm (Gusfield, "Algorithms on Strings, Trees, and Sequences", 1997) from the end on, in linear time.
    """
    text = tokens[::-1].tolist()
    n = len(text)
    found = [0] * n
    begin = end = 0  # of the match that reaches farthest
    for i in range(1, n):
        length = min(found[i - begin], end - i) if i < end else 0
        while i + length < n and text[length] == text[i + length]:
            length += 1
        if i + length > end:
            begin, end = i, i + length
        found[i] = length
    return np.array(found[:0:-1], np.int32)
