"""Choose how many tokens to draft: while the tokens that drafts are expected to save exceed the cost of their rows.

A table says what rows cost (``StepCosts``); it is measured once, when a model is loaded. Acceptance is a running mean
for each proposer of each sequence. A proposer that is not expected to pay is tried at doubling intervals. Nothing else
decides, and no clock is read after the load, so equal requests take equal steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul

from pumice.engine.drafts.costs import MEASURED, StepCosts

GAIN = 1.02  # least expected speed with drafts, relative to a step without
UNLIKELY = 0.02  # least probability of a verified token
PRIOR = 4.0  # drafts, or tokens, for which the rates before any are known count
LATEST = 16.0  # latest drafts, or tokens, that a running mean covers
LOOKED_UP_RATES = (0.4, 0.7)  # assumed acceptance of first and later tokens of drafts that are looked up
COMPUTED_RATES = (0.8, 0.8)  # ... and of those that a model computes
LONGEST_LOOKED_UP = 8  # maximum steps between two tries of a proposer that looks drafts up
PATIENCE = 4  # tries in a row before it rests
LONGEST_COMPUTED = 128  # ... and of one that computes them


@dataclass
class Mean:
    """A running mean, in which a number of the latest values count."""

    value: float
    weight: float = PRIOR

    def add(self, total: float, n: float) -> None:
        """Add ``n`` values with this sum."""
        if n > 0:
            self.value = (self.value * self.weight + total) / (self.weight + n)
            self.weight = min(self.weight + n, LATEST)


class Rates:
    """Acceptance of the first token of drafts, and of later ones whose predecessor was accepted."""

    def __init__(self, first: float, later: float) -> None:
        self.first = Mean(first)
        self.later = Mean(later)

    def count(self, n_drafted: int, n_accepted: int) -> None:
        """Count a draft, of which the first ``n_accepted`` tokens were right."""
        self.first.add(min(1, n_accepted), 1)
        self.later.add(max(0, n_accepted - 1), min(n_accepted, n_drafted - 1))

    def chances(self, n: int) -> list[float]:
        """Return the probability of each of ``n`` tokens to be accepted if those before it are."""
        return [self.first.value, *[self.later.value] * (n - 1)][:n]


class Acceptance:
    """What drafts of one proposer are worth for one sequence, and when it is tried next.

    Attributes:
        rates: how many of their tokens are accepted.
        wakes: number of the step from which on it is tried.
    """

    def __init__(self, is_computed: bool) -> None:
        self.rates = Rates(*(COMPUTED_RATES if is_computed else LOOKED_UP_RATES))
        self._patience, self._longest = (0, LONGEST_COMPUTED) if is_computed else (PATIENCE, LONGEST_LOOKED_UP)
        self._n_vain = 0
        self.wakes = 0

    def rest(self, step: int) -> None:
        """Note that a try of this step is not expected to pay: after a few, the next one is twice as far away.

        Rests end at multiples of their length, so that those of several sequences end together.
        """
        self._n_vain += 1
        if self._n_vain > self._patience:
            interval = min(1 << min(self._n_vain - self._patience - 1, 30), self._longest)
            self.wakes = (step // interval + 1) * interval + 1

    def end_rest(self) -> None:
        """Note that drafts are expected to pay."""
        self._n_vain = self.wakes = 0


class DraftChoice:
    """Chooses the lengths of drafts by their expected speed: tokens of a step relative to its cost.

    Args:
        n_draft: number of drafted tokens, always; -1: as many as are expected to pay.

    Attributes:
        costs: what steps cost.
    """

    def __init__(self, n_draft: int = -1) -> None:
        self.costs = StepCosts()
        self.n_draft = n_draft

    @property
    def is_fixed(self) -> bool:
        """True if the number of drafted tokens is set, so that nothing is chosen."""
        return self.n_draft >= 0

    def may_pay(self, n_rows: int) -> bool:
        """Return True if right drafts would make a step of ``n_rows`` rows without any worth its further rows."""
        if self.is_fixed:
            return self.n_draft > 0
        return any(
            (1 + n) * self.costs.of(n_rows) > GAIN * self.costs.of(n_rows * (1 + n)) for n in (1, MEASURED[-1] - 1)
        )

    def lengths(self, chances: Sequence[Sequence[float]], n_rows: int, room: int) -> list[int]:
        """Return the number of tokens to verify of each sequence's draft.

        Args:
            chances: for each sequence, the acceptance rate of each drafted token after those before.
            n_rows: rows of the step without drafts.
            room: maximum drafted tokens of all sequences together.
        """
        if self.is_fixed:
            ends = [min(room, end) for end in accumulate((min(len(own), self.n_draft) for own in chances), initial=0)]
            return [end - begin for begin, end in pairwise(ends)]
        lengths, n_seqs, tokens = [0] * len(chances), len(chances), 0.0
        best, highest = lengths[:], GAIN * n_seqs / self.costs.of(n_rows)
        coming = [own[0] if own else 0.0 for own in chances]  # probability of each draft's next token
        for n_drafted in range(1, room + 1):
            likeliest = max(coming)
            if likeliest < UNLIKELY:
                break
            i = coming.index(likeliest)
            tokens += likeliest
            lengths[i] += 1
            coming[i] *= chances[i][lengths[i]] if lengths[i] < len(chances[i]) else 0.0
            speed = (n_seqs + tokens) / self.costs.of(n_rows + n_drafted)
            if speed > highest:
                highest, best = speed, lengths[:]
        return best

    def common_length(self, name: str, rates: Sequence[Rates], n_rows: int, lengths: Sequence[int]) -> tuple[int, bool]:
        """Return the number of tokens, one of ``lengths``, to draft of every sequence, and True if it is to pay.

        If none pays, the number is that with which a try loses least.

        Args:
            name: the proposer.
            rates: acceptance of its drafts for each sequence.
            n_rows: rows of the step without drafts.
            lengths: possible numbers, ascending; a fixed one is cut to them.
        """
        if self.is_fixed:
            n = max((n for n in lengths if n <= self.n_draft), default=0)
            return n, n > 0
        speeds = {n: self._speed(name, rates, n_rows, n) for n in lengths}
        best = max(speeds, key=speeds.__getitem__, default=0)
        return best, best > 0 and speeds[best] > GAIN

    def _speed(self, name: str, rates: Sequence[Rates], n_rows: int, n: int) -> float:
        """Return the expected speed of a step that drafts ``n`` tokens of every sequence, relative to one without."""
        tokens = sum(1 + promise(own.chances(n)) for own in rates) / len(rates)
        base = self.costs.of(n_rows)
        return tokens * base / (self.costs.of(n_rows + n * len(rates)) + self.costs.draft(name, n) * base)


def promise(chances: Sequence[float]) -> float:
    """Return the expected number of accepted tokens of a draft."""
    return sum(accumulate(chances, mul))
