"""Learn how often drafted tokens are accepted: by proposer, by its own estimates of them, and by sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from operator import mul
from typing import NamedTuple

FADING = 0.98  # factor of earlier counts at each draft
STEADY = 0.995  # factor of earlier counts at each token of a part
PRIOR = 4.0  # weight, in drafts or tokens, of what is assumed of a smaller group: proposer, kind, sequence
FIRST, LATER = 0.4, 0.7  # acceptance rates of a proposer's first and later tokens before any are known
TRUSTING = 0.95  # factor of earlier counts of a sequence's tokens at each draft: the rates of all adapt meanwhile
TRUST = 16.0  # weight, in tokens, of the rates of all sequences as prior of a sequence's
PARTS = 16  # equal parts of probabilities whose acceptance rates are counted separately

DraftKind = tuple[str, int]
"""Name and confidence of a proposer."""

CERTAIN = ("forced", 0)
"""The kind of drafts that consist of tokens forced by a mask."""


@dataclass
class Hits:
    """Decaying counts of accepted draft tokens: the first token, and later tokens whose predecessor was accepted."""

    first: float = 0.0
    n_first: float = 0.0
    later: float = 0.0
    n_later: float = 0.0

    def count(self, n_drafted: int, n_accepted: int) -> None:
        """Count the accepted tokens of a draft."""
        n_later = min(n_accepted, n_drafted - 1)  # verified tokens whose predecessor was accepted
        self.first = FADING * self.first + (n_accepted > 0)
        self.n_first = FADING * self.n_first + 1
        self.later = FADING * self.later + max(0, n_accepted - 1)
        self.n_later = FADING * self.n_later + n_later

    def rates(self, first: float, later: float, weight: float) -> tuple[float, float]:
        """Return both acceptance rates, smoothed by prior rates of this weight."""
        return (
            (self.first + weight * first) / (self.n_first + weight),
            (self.later + weight * later) / (self.n_later + weight),
        )


@dataclass
class Share:
    """Decaying counts of tokens, and of those that were accepted or expected to be."""

    accepted: float = 0.0
    n: float = 0.0

    def count(self, accepted: float, n: float = 1.0, fading: float = FADING) -> None:
        self.accepted = fading * self.accepted + accepted
        self.n = fading * self.n + n

    def rate(self, prior: float, weight: float = PRIOR) -> float:
        """Return the share of accepted tokens, smoothed by a prior rate of this weight."""
        return (self.accepted + weight * prior) / (self.n + weight)


@dataclass
class Record:
    """Acceptance of one sequence's drafts.

    Attributes:
        hits: counts by kind.
        trust: accepted tokens by proposer, and those expected from its estimates; fewer of them lower the rates.
    """

    hits: dict[DraftKind, Hits] = field(default_factory=dict)
    trust: dict[str, Share] = field(default_factory=dict)


class DraftSummary(NamedTuple):
    """A draft that a step may verify.

    Attributes:
        kind: proposer and its confidence.
        n: number of tokens.
        record: acceptance of earlier drafts of its sequence.
        probabilities: the proposer's estimate for each token, if it has some.
    """

    kind: DraftKind
    n: int
    record: Record
    probabilities: Sequence[float] = ()


class Acceptance:
    """Acceptance rates of all sequences' drafts.

    Estimates of a proposer that makes some are calibrated: in each part of them, the share of accepted tokens begins as
    the estimate itself. So a new sequence, or a text unlike those before, starts with a rate for each token.
    """

    def __init__(self) -> None:
        self._pooled: dict[DraftKind, Hits] = {}
        self._parts: dict[str, list[Share]] = {}
        self._later: dict[str, Share] = {}  # rates of tokens behind the first that a proposer computed

    def chances(self, summary: DraftSummary) -> list[float]:
        """Return the probability of each token of a draft to be accepted if those before it are."""
        if summary.kind == CERTAIN:
            return [1.0] * summary.n
        if summary.probabilities:
            name = summary.kind[0]
            rates, trust = self.rates(name), summary.record.trust.get(name, Share()).rate(1.0, TRUST)
            return [min(1.0, trust) * rates[part_of(p)] for p in summary.probabilities[: summary.n]]
        first, later = self.of_kind(summary.kind, summary.record)
        return [first, *[later] * (summary.n - 1)][: summary.n]

    def promise(self, summary: DraftSummary) -> float:
        """Return the expected number of accepted tokens of a draft."""
        return sum(accumulate(self.chances(summary), mul))

    def of_kind(self, kind: DraftKind, record: Record) -> tuple[float, float]:
        """Return the rates of the first and of later tokens of drafts of a kind."""
        first, later = self._pooled.get((kind[0], -1), Hits()).rates(FIRST, LATER, PRIOR)
        first, later = self._pooled.get(kind, Hits()).rates(first, later, PRIOR)
        return record.hits.get(kind, Hits()).rates(first, later, PRIOR)

    def rates(self, name: str) -> list[float]:
        """Return the acceptance rate of each part of a proposer's estimates."""
        shares = self._parts.setdefault(name, [Share() for _ in range(PARTS)])
        return [share.rate((part + 0.5) / PARTS) for part, share in enumerate(shares)]

    def later(self, name: str) -> float:
        """Return the mean rate of tokens behind the first that a proposer computed."""
        return self._later.get(name, Share()).rate(LATER)

    def is_known(self, name: str) -> bool:
        """Return True if drafts of a proposer were judged."""
        return (name, -1) in self._pooled

    def computed(self, summary: DraftSummary) -> None:
        """Note the estimates of the tokens that a proposer computed for a draft, verified or not."""
        later = self.chances(summary)[1:] if summary.probabilities else []
        if later:
            self._later.setdefault(summary.kind[0], Share()).count(sum(later), len(later))

    def judge(self, summary: DraftSummary, n_accepted: int) -> None:
        """Count the accepted tokens of a draft for its kind, its proposer and its sequence."""
        for hits in (self._pooled, summary.record.hits):
            hits.setdefault(summary.kind, Hits()).count(summary.n, n_accepted)
        self._pooled.setdefault((summary.kind[0], -1), Hits()).count(summary.n, n_accepted)
        if not summary.probabilities:
            return
        name = summary.kind[0]
        rates = self.rates(name)
        judged = summary.probabilities[: min(n_accepted + 1, summary.n)]
        trust = summary.record.trust.setdefault(name, Share())
        trust.count(n_accepted, sum(rates[part_of(p)] for p in judged), TRUSTING)
        for i, probability in enumerate(judged):
            self._parts[name][part_of(probability)].count(i < n_accepted, fading=STEADY)


def part_of(probability: float) -> int:
    """Return the part to which a probability belongs."""
    return min(PARTS - 1, max(0, int(PARTS * probability)))


class Stop(NamedTuple):
    """Ends drafts that are computed token by token.

    Attributes:
        rates: acceptance rate of a token by part of its estimated probability.
        least: minimum probability that a draft of ``1 + i`` tokens is right for which another one is computed.
    """

    rates: Sequence[float]
    least: Sequence[float]

    def goes_on(self, probabilities: Sequence[float]) -> bool:
        """Return True if a token behind those with these estimates is expected to pay."""
        n = len(probabilities)
        return n <= len(self.least) and prod(self.rates[part_of(p)] for p in probabilities) >= self.least[n - 1]
