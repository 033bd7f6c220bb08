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
AT_BEST = 0.95, 16.0  # ... and before rounds end, with the weight of this rate in tokens
FIRST = 3  # drafted tokens of the first round
SHARE = 0.5  # least time of a further token that is assumed before it is measured, relative to the mean of a token
PROMISING = 1.1  # expected speed of rounds, relative to steps without drafts, for which they are lent credit
BETTER = 1.05  # least speed of another length, relative to the latest: a round of another length begins alone
ENOUGH = 3  # measurements of a length that count without a doubt: one may contain a delay

NONE = Share()


@dataclass
class _Kind:
    """Measurements of a kind of batch.

    Attributes:
        seconds: of rounds by their drafted tokens.
        right: how often each token was right after those before.
        latest: the latest length.
    """

    seconds: defaultdict[int, Usual] = field(default_factory=lambda: defaultdict(Usual))
    right: list[Share] = field(default_factory=list)
    latest: int = 0

    def expected(self, n: int, *hoped: float) -> float:
        """Return the expected tokens of a round with ``n`` drafted tokens.

        ``hoped``: the rate of each token at first, with its weight in tokens (default: that of the one before).
        """
        total, likely, prior = 1.0, 1.0, HOPED
        for i in range(n):
            share = self.right[i] if i < len(self.right) else NONE
            prior = share.rate(*(hoped or (prior,)))
            likely *= prior
            total += likely
        return total

    def judged(self, n_right: int, n: int) -> None:
        """Count the right tokens of a draft of ``n``."""
        self.right += [Share() for _ in range(n - len(self.right))]
        for share in self.right[: min(n_right + 1, n)]:
            share.count(1.0)
        if n_right < n:
            self.right[n_right].accepted -= 1.0

    def estimate(self, n: int) -> float:
        """Return the seconds of a round with ``n`` drafted tokens; the least that is likely until there are ``ENOUGH``.

        A round has two steps besides those of its tokens: that of the draft for confirmed tokens, and the model's.
        """
        own = self.seconds.get(n)
        others = {m: usual for m, usual in self.seconds.items() if m != n}
        if own and (own.n_latest >= ENOUGH or not others):
            return own.value
        nearest = min(others, key=lambda m: abs(m - n))
        share = (n - nearest) / (nearest + 2)
        least = others[nearest].value * (1 + (SHARE * share if share > 0 else share))
        return min(least, own.value) if own else least


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
        speeds = {n: own.expected(n) / own.estimate(n) for n in lengths}
        best = max(lengths, key=speeds.__getitem__)
        if own.latest not in speeds or speeds[best] > BETTER * speeds[own.latest]:
            own.latest = best
        return own.latest

    def usual(self, kind: Hashable, n: int) -> float | None:
        """Return the usual seconds of a round with ``n`` drafted tokens; None before there are ``ENOUGH``."""
        own = self._kinds[kind].seconds.get(n)
        return own.value if own and own.n_latest >= ENOUGH else None

    def pays(self, kind: Hashable, lengths: Sequence[int], pace: float) -> bool:
        """Return True if rounds of a length could be faster than steps of ``pace`` seconds."""
        own = self._kinds[kind]
        return not own.seconds or any(pace * own.expected(n, *AT_BEST) > own.estimate(n) for n in lengths)

    def promises(self, kind: Hashable, pace: float) -> bool:
        """Return True if rounds of a length that is known are expected to be faster than steps of ``pace`` seconds."""
        own = self._kinds[kind]
        measured = [n for n, usual in own.seconds.items() if usual.n_latest >= ENOUGH]
        return any(pace * own.expected(n) > PROMISING * own.seconds[n].value for n in measured)

    def judged(self, kind: Hashable, n_right: int, n: int) -> None:
        """Count the right tokens of a draft of ``n``."""
        self._kinds[kind].judged(n_right, n)

    def took(self, kind: Hashable, n: int, seconds: float) -> None:
        """Record the seconds of a round with ``n`` drafted tokens."""
        self._kinds[kind].seconds[n].add(seconds)
