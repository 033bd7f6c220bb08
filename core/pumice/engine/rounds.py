"""Choose how many tokens a layer drafts where its steps and the one that verifies them are submitted together.

Such a round waits for the device once, so its time is that from one result to the next. It is measured for each number
of drafted tokens, and lengths that were not measured are tried where they could be better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from pumice.engine.acceptance import Share
from pumice.engine.usual import Usual

HOPED = 0.8  # acceptance rate of a token until drafts were judged
FIRST = 3  # drafted tokens of the first round
SHARE = 0.5  # least time of a further token that is assumed before it is measured, relative to the mean of a token


@dataclass
class _Kind:
    """Seconds of rounds of a kind of batch by their drafted tokens, and right tokens of its drafts."""

    seconds: defaultdict[int, Usual] = field(default_factory=lambda: defaultdict(Usual))
    right: Share = field(default_factory=Share)

    def expected(self, n: int) -> float:
        """Return the expected tokens of a round with ``n`` drafted tokens."""
        rate = self.right.rate(HOPED)
        return sum(rate**i for i in range(n + 1))

    def estimate(self, n: int) -> float:
        """Return the seconds of a round with ``n`` drafted tokens, if they were not measured the least that is likely.

        A round has two steps besides those of its tokens: that of the draft for confirmed tokens, and the model's.
        """
        if n in self.seconds:
            return self.seconds[n].value
        nearest = min(self.seconds, key=lambda m: abs(m - n))
        share = (n - nearest) / (nearest + 2)
        return self.seconds[nearest].value * (1 + (SHARE * share if share > 0 else share))


class Rounds:
    """Measured rounds by kind of batch."""

    def __init__(self) -> None:
        self._kinds: defaultdict[Hashable, _Kind] = defaultdict(_Kind)

    def length(self, kind: Hashable, lengths: Sequence[int]) -> int:
        """Return the number of tokens to draft, one of ``lengths``: that with most expected tokens per second."""
        own = self._kinds[kind]
        if not lengths:
            return 0
        if not own.seconds:
            return max((n for n in lengths if n <= FIRST), default=lengths[0])
        return max(lengths, key=lambda n: own.expected(n) / own.estimate(n))

    def judged(self, kind: Hashable, n_right: int, n: int) -> None:
        """Count the right tokens of a draft of ``n``."""
        self._kinds[kind].right.count(n_right, n_right + (n_right < n))

    def took(self, kind: Hashable, n: int, seconds: float) -> None:
        """Record the seconds of a round with ``n`` drafted tokens."""
        self._kinds[kind].seconds[n].add(seconds)
