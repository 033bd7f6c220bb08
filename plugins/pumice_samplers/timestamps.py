"""Whisper's rules of the tokens of times in a transcript (Radford et al. 2022, arXiv:2212.04356)."""

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from pumice.plugin import Candidates, RequestError, Sampler, SamplerContext

LATEST_FIRST = 50  # steps of 0.02 seconds after which a transcript begins at the latest


@dataclass
class Timestamps(Sampler):
    """Begin with a time, follow each text with one, and never go back in time.

    Times come alone at the beginning and at the end, otherwise in pairs. If the times together are more probable than
    any text, a time comes next. Tokens between the end token and the times, such as languages, never come.

    Attributes:
        first_timestamp: id of the token ``<|0.00|>``, behind which those of later times follow.
        forced_tokens: ids of the first tokens, such as language and task.
    """

    first_timestamp: Annotated[int, Ge(0)] = 0
    forced_tokens: list[int] = field(default_factory=list)
    _generated: list[int] = field(default_factory=list, init=False, repr=False)
    _has_begun: bool = field(default=False, init=False, repr=False)
    _ascending: NDArray[np.int32] | None = field(default=None, init=False, repr=False)  # ids of the latest candidates

    def start(self, context: SamplerContext) -> None:
        end = context.tokenizer.eos if context.tokenizer else None
        if end is None or not end < self.first_timestamp < context.n_vocab:
            raise RequestError(
                f"first_timestamp: {self.first_timestamp} is no token of a time; use a model of Whisper's"
            )
        self._end, self._generated, self._has_begun = end, [], False
        self._forced = list(self.forced_tokens)

    def accept(self, token: int) -> None:
        if self._forced and self._has_begun:
            self._forced.pop(0)
        elif self._has_begun:
            self._generated.append(token)

    def apply(self, candidates: Candidates) -> None:
        self._has_begun = True
        if self._forced:
            candidates.keep(candidates.ids == self._forced[0])
            return
        if candidates.ids is not self._ascending:  # those of a mask are the same for each token
            if not (candidates.ids[1:] > candidates.ids[:-1]).all():
                candidates.keep(np.argsort(candidates.ids))
            self._ascending = candidates.ids
        logits, bounds = candidates.logits, np.array([self._end, self._end + 1, *self._bounds()], np.int32)
        end, behind, first, last = np.searchsorted(self._ascending, bounds).tolist()
        texts, times = logits[:behind], logits[first:last]
        last_is_time, is_pair = self._last()
        if not self._generated:
            texts = texts[:0]
        elif last_is_time and not is_pair:
            texts[:end] = -np.inf
        elif last_is_time:
            times = times[:0]
        total, of_times = _together(texts), _together(times)
        if of_times > texts.max(initial=-np.inf):
            logits[:first], candidates.total = -np.inf, of_times
        else:
            logits[behind:first], candidates.total = -np.inf, float(np.logaddexp(total, of_times))
        logits[first + len(times) :] = -np.inf

    def _last(self) -> tuple[bool, bool]:
        """Return True if the last token is a time, and if no text is before it."""
        last = [token >= self.first_timestamp for token in self._generated[-2:]]
        return bool(last) and last[-1], len(last) < 2 or last[-2]

    def _bounds(self) -> tuple[int, int]:
        """Return the first time that may come, and the one behind the last."""
        if not self._generated:
            return self.first_timestamp, self.first_timestamp + LATEST_FIRST + 1
        times = [token for token in self._generated if token >= self.first_timestamp]
        last_is_time, is_pair = self._last()
        latest = times[-1] if times else self.first_timestamp
        return (latest if last_is_time and not is_pair else latest + 1), 2**31 - 1


def _together(logits: NDArray[np.float32]) -> float:
    """Return the logarithm of the sum of ``e**logit``."""
    peak = logits.max(initial=-np.inf)
    return float(peak + np.log(np.exp(logits - peak).sum())) if np.isfinite(peak) else -np.inf
