"""DRY, "don't repeat yourself": a penalty on tokens that would extend a repetition.

By p-e-w, https://github.com/oobabooga/text-generation-webui/pull/5677.
"""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from pumice.plugin import Candidates, RequestError, SamplerContext
from pumice.plugin.unstable import Pick, Plan, PlannedSampler
from pumice_samplers.breakers import Breakers, Breaks
from pumice_samplers.history import History

_LOG_FLOAT32_MAX = 88.7228391
_FEW = 64  # tokens for which lengths are updated incrementally


@dataclass
class Dry(PlannedSampler):
    """If the last n tokens occurred before, then the token that followed them there loses

        dry_multiplier * dry_base ** (n - dry_allowed_length)        if n >= dry_allowed_length

    for the greatest such n. A match does not extend across a sequence breaker, and tokens that contain a breaker are
    not penalized.

    Attributes:
        dry_multiplier: strength of the penalty; 0: off.
        dry_base: growth factor per token of the match.
        dry_allowed_length: shorter matches are not penalized.
        dry_penalty_last_n: number of latest tokens to search, prompt included; 0: no penalty.
        dry_sequence_breakers: up to 64 strings of up to 40 characters; ignored without a tokenizer.
    """

    dry_multiplier: Annotated[float, Ge(0)] = 0.0
    dry_base: Annotated[float, Ge(1)] = 1.75
    dry_allowed_length: Annotated[int, Ge(0)] = 2
    dry_penalty_last_n: Annotated[int, Ge(0)] = 64
    dry_sequence_breakers: list[str] = field(default_factory=lambda: ["\n", ":", '"', "*"])

    def __post_init__(self) -> None:
        if len(self.dry_sequence_breakers) > 64 or any(len(text) > 40 for text in self.dry_sequence_breakers):
            raise RequestError("dry_sequence_breakers must be at most 64 strings of at most 40 characters")

    def plan(self) -> Plan:
        neutral = self.dry_multiplier == 0 or self.dry_penalty_last_n == 0
        return Plan(neutral, pick=self._pick, biases=self.biases, biases_behind=self.biases_behind)

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
        """Return the tokens that would extend a repetition, and the values to add to their logits."""
        tokens, penalties = self._penalties()
        return list(zip(tokens.tolist(), (-penalties).tolist(), strict=True))

    def biases_behind(self, tokens: Sequence[int]) -> Sequence[Sequence[tuple[int, float]]]:
        """Return what ``biases`` would return behind each of these tokens, if they came next."""
        other = copy(self)
        other._history = self._history.end(self.dry_penalty_last_n)
        other._repeats, other._breaks = copy(self._repeats), copy(self._breaks)
        return list(map(other._biases_after, tokens))

    def _biases_after(self, token: int) -> Sequence[tuple[int, float]]:
        self.accept(token)
        return self.biases()

    def apply(self, candidates: Candidates) -> None:
        tokens, penalties = self._penalties()
        indices = candidates.positions(tokens)
        is_candidate = indices >= 0
        candidates.logits[indices[is_candidate]] -= penalties[is_candidate]
        candidates.sorted = False

    def _penalties(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the tokens that would extend a repetition, and their penalties."""
        tokens = self._history.last(self.dry_penalty_last_n)
        reach = self._breaks.distance(len(tokens))
        if len(tokens) <= self.dry_allowed_length or reach < self.dry_allowed_length:
            return np.empty(0, np.int32), np.empty(0, np.float32)
        matches = np.minimum(self._repeats.lengths(tokens), min(reach, self._longest, len(tokens)))
        repeated = matches >= self.dry_allowed_length
        longest = np.full(int(tokens.max()) + 1, -1, np.int32)  # longest match per token, in linear time
        np.maximum.at(longest, tokens[1:][repeated], matches[repeated])
        followers = np.flatnonzero(longest >= 0).astype(np.int32)
        lengths = longest[followers]
        hit = np.array([not self._breakers.is_one(token) for token in followers.tolist()], bool)
        growth = self.dry_base ** (lengths[hit] - self.dry_allowed_length).astype(np.float64)
        return followers[hit], (self.dry_multiplier * growth).astype(np.float32)

    @property
    def _longest(self) -> int:
        """Return the match length beyond which the penalty would exceed float32."""
        growth = math.log(self.dry_base)
        return self.dry_allowed_length + int(_LOG_FLOAT32_MAX / growth) if growth > 1e-6 else self.dry_penalty_last_n


class Repeats:
    """Lengths of repetitions of a sequence's end, updated from those of the previous token."""

    def __init__(self) -> None:
        self._lengths = np.empty(0, np.int32)  # for each token of the window except the last
        self._n_new = 0  # number of tokens appended since

    def append(self) -> None:
        """Note that the sequence has one more token."""
        self._n_new += 1

    def lengths(self, tokens: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return int32 [n - 1]: how many tokens ending at each of the last n equal those at the sequence's end."""
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
    """Return int32 [n - 1]: how many tokens ending at each position equal those ending at the last one.

    The Z-algorithm (Gusfield, "Algorithms on Strings, Trees, and Sequences", 1997), applied from the end, in linear
    time.
    """
    text = tokens[::-1].tolist()
    n = len(text)
    lengths = [0] * n
    begin = end = 0  # bounds of the match that extends farthest
    for i in range(1, n):
        length = min(lengths[i - begin], end - i) if i < end else 0
        while i + length < n and text[length] == text[i + length]:
            length += 1
        if i + length > end:
            begin, end = i, i + length
        lengths[i] = length
    return np.array(lengths[:0:-1], np.int32)
