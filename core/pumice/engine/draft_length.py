"""Choose the number of drafted tokens per step, from the measured cost of rows and the acceptance rates of tokens.

The choice depends on the clock, so it is made only where results are independent of the number of rows: there it
affects only speed, never the text. Elsewhere the length is fixed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from pumice.engine.acceptance import Acceptance, DraftSummary, Share, Stop
from pumice.engine.usual import KEPT, Usual

LOSS = 0.003  # share of time that rejected drafts and proposers may take
GAIN = 0.03  # least expected time that drafts of a step save, in steps without drafts
MOST = 31  # maximum tokens of a draft
MOST_PACED = 15  # ... beside a program that computes several steps by itself
PACED_LENGTHS = (1, 3, 7, 15)  # ... and the lengths that a model computes there: each is a submission of its own
HOPED = 0.8  # ... for which a token's acceptance rate is assumed until drafts were judged
AT_BEST = 0.95, 16.0  # ... and before a proposer is given up, with the weight of this rate in tokens
COMPUTING = 0.3  # ... and the time of a computed token, in steps without drafts, until it was measured
START = 2.0  # initial credit for rejected drafts, in steps
TRIAL = 4.0  # further credit at the first draft of each proposer that computes its tokens, to measure what they save
RISK = 0.25  # least assumed probability that a draft is rejected
MOST_LOST = 8.0  # maximum debt, in steps
MOST_SAVED = 6.0  # maximum credit from earlier gains, in steps
MOST_SAVED_COMPUTED = 12.0  # ... once a proposer that computes its tokens was asked
PROBES = 64  # declined steps per probe, a draft verified although it is not expected to save time
PROBE = 3  # tokens of a probe
LIKELY = 0.2  # minimum probability of a probe's first token
UNLIKELY = 0.02  # minimum probability of a verified token
ASKING = 0.001  # share of time that proposers may take while their drafts do not pay
LONGEST_REST = 1024  # maximum steps between two drafts of a proposer that rests
PACED_REST = 16  # ... beside a program that computes several steps by itself
PATIENCE = 8  # times in a row that a proposer is asked in vain in each step while drafts of others save time
BRIEF_REST = 8  # maximum steps of its rests after that, while they do
FIRST_MOST = 0.5  # maximum time of each further row that was measured once, relative to that of the first row
DELAYED = 1.5  # multiple of the estimated time of a step above which the rest is a delay by other programs
PACING = 0.98  # factor of earlier steps in the mean time of a token
PACED = 20.0  # weight, in steps, of the time of a token without drafts, before there are any
RENEWED = 8  # maximum steps between two estimates of when computed drafts end
PLAIN = 64  # steps with drafts between two without, which measure the time of a step without drafts


class Costs:
    """Measured seconds of steps by their numbers of sequences and rows.

    A step without drafts has a row per sequence. The time of more rows is kept as a multiple of the current time of
    such a step, since the times of all steps grow with the contexts. Other programs on the machine may lengthen single
    steps, so estimates use the lower third of the latest measurements, and are made monotonic: more rows never take
    less time. Nor do rows take longer together than one by one, so that a single slow step does not end drafts for
    long. The first step with a number of rows may contain the start of kernels; further rows take ``FIRST_MOST`` of a
    row's time at most until there is a second.
    """

    def __init__(self) -> None:
        self._plain: dict[int, Usual] = {}  # seconds of a step without drafts
        self._multiples: dict[int, dict[int, Usual]] = {}
        self._curves: dict[int, tuple[list[int], list[float]]] = {}  # rows and multiples, both ascending
        self._paced: dict[int, set[int]] = {}  # classes of rows that were started, of numbers of sequences with a pace

    def keep_pace(self, n_seqs: int, seconds: float) -> None:
        """Replace the time of a step without drafts; a step with drafts may then take longer than its rows one by one.

        The first step of a class of rows, which contains the start of kernels, is not recorded.
        """
        self._plain[n_seqs] = Usual()
        self._plain[n_seqs].add(seconds)
        self._curves.setdefault(n_seqs, ([n_seqs], [1.0]))
        self._paced.setdefault(n_seqs, set())

    def took(self, n_seqs: int, n_rows: int, seconds: float) -> None:
        """Record the time of a step. More rows than sequences count once a step without drafts was measured."""
        if n_rows == n_seqs:
            self._plain.setdefault(n_seqs, Usual()).add(seconds)
            self._curves.setdefault(n_seqs, ([n_seqs], [1.0]))
        elif n_seqs in self._plain:
            started = self._paced.get(n_seqs)
            if started is not None and class_of(n_rows) not in started:
                started.add(class_of(n_rows))
                return
            multiples = self._multiples.setdefault(n_seqs, {})
            multiples.setdefault(n_rows, Usual()).add(seconds / self._plain[n_seqs].value)
            rows = sorted(multiples, reverse=True)
            curve = accumulate((multiples[n].value for n in rows), min)
            most = [
                math.inf if started else 1 + (n / n_seqs - 1) * (FIRST_MOST if multiples[n].is_first else 1)
                for n in rows
            ]
            bounded = [max(1.0, min(pair)) for pair in zip(curve, most, strict=True)]
            self._curves[n_seqs] = [n_seqs, *rows[::-1]], [1.0, *bounded[::-1]]

    def is_first(self, n_seqs: int, n_rows: int) -> bool:
        """Return True if steps of ``n_seqs`` sequences with ``n_rows`` rows were measured once."""
        return (multiple := self._multiples.get(n_seqs, {}).get(n_rows)) is not None and multiple.is_first

    def most_rows(self, n_seqs: int) -> int:
        """Return the maximum number of rows with an estimate: twice the largest measured number."""
        return 2 * self._curves[n_seqs][0][-1] if n_seqs in self._curves else 0

    def seconds(self, n_seqs: int, n_rows: int, at_most: bool = False) -> float | None:
        """Return the estimated seconds of a step; None if none of ``n_seqs`` sequences without drafts was measured.

        Of more rows than were measured, this is what the largest measured number takes; with ``at_most``, time goes on
        to grow as between the last two numbers, if there are two. Beside a pace, of fewer rows than were measured it is
        what the smallest number takes: such a step waits for the host, with few rows as with many.
        """
        if n_seqs not in self._curves:
            return None
        rows, multiples = self._curves[n_seqs]
        if len(rows) == 1 or (n_rows > rows[-1] and not at_most):
            return multiples[-1] * self._plain[n_seqs].value
        i = min(max(1, bisect_left(rows, n_rows)), len(rows) - 1)
        if i == 1 and rows[0] < n_rows < rows[1] and n_seqs in self._paced:
            return multiples[1] * self._plain[n_seqs].value
        share = (n_rows - rows[i - 1]) / (rows[i] - rows[i - 1])
        return (multiples[i - 1] + share * (multiples[i] - multiples[i - 1])) * self._plain[n_seqs].value


LOOKED_UP = ""
"""The proposers that compute nothing: their times are measured together, with all other work for drafts."""


@dataclass
class Rest:
    """Steps between two drafts: a power of two, doubled while drafts do not pay.

    Rests end at multiples of their length, so that those of several sequences end together.

    Attributes:
        n_steps: steps from one draft to the next.
        wakes: number of the step in which the proposers are asked next.
        n_vain: times that they were asked since a token was accepted.
    """

    n_steps: int = 1
    wakes: int = 0
    n_vain: int = 0

    def sleep(self, step: int, most: int) -> None:
        """Rest from a step on, twice as long as before, for ``most`` steps at most."""
        self.n_vain += 1
        self.n_steps = min(2 * self.n_steps, 1 << (max(1, most).bit_length() - 1))
        self.wakes = (step // self.n_steps + 1) * self.n_steps

    def end(self) -> None:
        """End the rest since a draft paid."""
        self.n_steps, self.wakes, self.n_vain = 1, 0, 0


class DraftLength:
    """Chooses the lengths of drafts.

    The length is that with which a step is expected to save most time: a row is worth its time if a token takes longer
    otherwise, in the mean of the latest steps. Drafts are verified if the step is expected to save time, or as a probe,
    to measure the time of more rows; and if half of the credit is enough for the time that is lost if all their tokens
    are wrong, times the probability of that.
    The credit is a small share of the time of all steps (``LOSS``) and what drafts saved recently; the time of
    proposers is charged to it as well. So generation takes at most that share longer than without drafts, and ``START``
    steps, with ``TRIAL`` for each proposer that computes its tokens. While the drafts of a proposer do not pay, it
    rests longer and longer, until asking it takes a share of ``ASKING`` of the time at most. What it proposes then is
    compared with the tokens that follow, so acceptance rates are learned without verifying drafts.

    Beside a program that computes several steps by itself (``keep_pace``), ``HostDrafts`` keeps the credit, and steps
    with drafts of any length are compared with the pace of that program.

    Args:
        fixed: constant number of drafted tokens; -1: chosen by measurement.

    Attributes:
        longest: maximum tokens that a model computes for a draft.
    """

    def __init__(self, fixed: int = -1) -> None:
        self.fixed = fixed
        self.longest = MOST
        self.costs = Costs()
        self._is_paced = False
        self.acceptance = Acceptance()
        self._pace = _Pace()
        self._stops: dict[tuple[str, int, int], tuple[int, int, Stop]] = {}  # with the step of renewal, steps until it
        self._n_steps = 0  # recorded ones
        self._credit = START  # steps
        self._most_saved = MOST_SAVED
        self._n_declined = 0
        self._n_taken = 0
        self._n_drafted = 0  # steps with drafts since one without
        self._taken: dict[str, deque[float]] = {}  # latest seconds by kind of work, or by proposer that was asked
        self._spent = 0.0  # seconds of proposers since the latest recorded step
        self._per_token: dict[str, Usual] = {}  # seconds per proposed token, of proposers that compute them
        self._right: dict[str, Share] = {}  # right tokens of computed drafts, and those at which drafts ended
        self._given_up: set[str] = set()  # proposers that were not asked the last time, since no length pays
        self._base = 0.0  # seconds of the latest recorded step, had it had no drafts
        self._n_accrued = 0  # steps since the latest recorded one whose credit was added
        self._n_elapsed = 1  # steps between the latest two recorded ones

    def keep_pace(self, n_seqs: int, seconds: float | None) -> None:
        """Compare steps with drafts with this time of a step without; None: with measured steps of the host."""
        self._is_paced = seconds is not None
        if seconds is not None:
            self._base = seconds
            self.costs.keep_pace(n_seqs, seconds)

    def most(self, n_seqs: int, n_rows: int) -> int:
        """Return the maximum tokens of a draft for a step of ``n_rows`` rows before drafts.

        Of lengths that are chosen by measurement, those whose cost cannot be estimated are not asked for.
        """
        if self._is_paced and self.fixed < 0:
            return MOST_PACED
        return self.fixed if self.fixed >= 0 else max(1, min(MOST, self.costs.most_rows(n_seqs) - n_rows))

    def most_computed(self, proposer: str, n_seqs: int = 1) -> int:
        """Return the maximum tokens of a draft that a model computes: enough for a probe until one was judged.

        Beside a program that computes steps by itself, it is the length with which a step is expected to give most
        tokens per second. All its tokens are computed, in a single submission. If no length pays, the result is 0, and
        the next time a trial.
        """
        if self._is_paced and self.fixed < 0:
            right = self._right.get(proposer, Share())
            pays = any(self._speed(proposer, n_seqs, n, right.rate(*AT_BEST)) > 1 for n in self.paced_lengths)
            self._given_up ^= set() if pays and proposer not in self._given_up else {proposer}
            rate = right.rate(HOPED)
            best = max(self.paced_lengths, key=lambda n: self._speed(proposer, n_seqs, n, rate))
            return 0 if proposer in self._given_up else best
        return self.fixed if self.fixed >= 0 else MOST if self.acceptance.is_known(proposer) else PROBE

    @property
    def paced_lengths(self) -> list[int]:
        """The lengths of drafts that a model computes beside a program that computes several steps by itself."""
        if self.fixed >= 0:
            return [self.fixed] if self.fixed else []
        return [n for n in PACED_LENGTHS if n <= self.longest]

    def _speed(self, proposer: str, n_seqs: int, n: int, rate: float) -> float:
        """Return the speed of steps with ``n`` computed tokens of each sequence, relative to steps without drafts.

        ``rate``: the acceptance rate of a token.
        """
        base, usual = self.costs.seconds(n_seqs, n_seqs), self._per_token.get(proposer)
        assert base is not None
        computing = (usual.value if usual else COMPUTING * base) * (n * n_seqs + 2)
        verifying = self.costs.seconds(n_seqs, (1 + n) * n_seqs) or base
        return sum(rate**i for i in range(n + 1)) * base / (computing + verifying)

    def stop(self, proposer: str, n_seqs: int, n_rows: int) -> Stop | None:
        """Return when a proposer that computes its tokens one by one ends a draft; None if lengths are fixed, or paced.

        A token more is computed if it, or with it some that follow, is expected to save more time than it takes to
        compute and to verify.

        Args:
            proposer: its name.
            n_seqs: sequences of the step, whose drafts are assumed to be equally long.
            n_rows: rows of the step without drafts.
        """
        if self.fixed >= 0 or self._is_paced:
            return None
        key = proposer, n_seqs, n_rows
        due, n_kept, stop = self._stops.get(key, (0, 0, None))
        if stop is None or self._n_steps >= due:
            stop = Stop(self.acceptance.rates(proposer), self._least(proposer, n_seqs, n_rows))
            n_kept = min(RENEWED, n_kept + 1)  # the first estimates change most
            self._stops[key] = self._n_steps + n_kept, n_kept, stop
        return stop

    def _least(self, proposer: str, n_seqs: int, n_rows: int) -> list[float]:
        """Return ``Stop.least`` for drafts of one token, two tokens, ..."""
        base, usual = self.costs.seconds(n_seqs, n_rows), self._per_token.get(proposer)
        if base is None or usual is None:
            return [0.0] * MOST
        most = min(MOST, self.costs.most_rows(n_seqs) // n_seqs)
        rows = [(self.costs.seconds(n_seqs, n_rows + n_seqs * n) or base) / n_seqs for n in range(most + 1)]
        spent = [seconds + usual.value * n for n, seconds in enumerate(rows)]
        rate, value = self.acceptance.later(proposer), self._pace.value * base / n_seqs
        gains = list(accumulate((value * rate**n for n in range(1, most + 1)), initial=0.0))
        return [
            min(((spent[m] - spent[n]) / gains[m - n] for m in range(n + 1, most + 1)), default=1.0)
            for n in range(1, most + 1)
        ]

    def wants(self, n_seqs: int, n_rows: int, n_elapsed: int = 0) -> bool:
        """Return True if proposers should be asked for a step of ``n_rows`` rows before drafts.

        ``n_elapsed``: steps since the latest recorded one, for which there is credit now.
        """
        if self.fixed >= 0 or self._is_paced:
            return self.fixed != 0
        self._accrue(n_elapsed - self._n_accrued)
        self._n_accrued = n_elapsed
        measured = self.costs.seconds(n_seqs, n_rows) is not None
        return measured and self._n_drafted < PLAIN and self._credit > 0

    def computed(self, proposer: str, n_right: int, has_ended: bool) -> None:
        """Count the right tokens of a draft that a model computed.

        ``has_ended``: whether the next token was wrong, or too improbable to be proposed.
        """
        self._right.setdefault(proposer, Share()).count(n_right, n_right + has_ended)

    def asked(
        self, proposer: str, seconds: float, n_tokens: int = 0, reading: float = 0.0, is_first: bool = False
    ) -> None:
        """Record the time that asking took in a step.

        Args:
            proposer: name of a proposer that computes its tokens, or ``LOOKED_UP``.
            seconds: time of the proposals.
            n_tokens: computed tokens of all sequences.
            reading: time that reading the confirmed tokens took since it was asked last.
            is_first: whether a step of its model had a size for the first time, whose preparation is not measured.
        """
        if self.fixed >= 0:
            return
        begins = proposer not in self._taken
        if begins:  # with little of what a proposer reads at first
            seconds = min(seconds, self._base or seconds)
            if proposer != LOOKED_UP:
                self._credit, self._most_saved = self._credit + TRIAL, MOST_SAVED_COMPUTED
        if is_first and not begins:
            return
        self.charge(proposer, seconds + reading)
        if n_tokens and not is_first and not (begins and self._is_paced):  # its first time is no measurement
            self._per_token.setdefault(proposer, Usual()).add(seconds / (n_tokens + 2))  # two passes read the text

    def charge(self, work: str, seconds: float) -> None:
        """Charge the time of a kind of work that steps without proposers do not have to the credit.

        The first time of each is not kept, since it contains what is done once.
        """
        if work not in self._taken:
            self._taken[work] = deque(maxlen=KEPT)
            return
        latest = self._taken[work]
        latest.append(seconds)
        self._spent += _median(latest)  # without delays by other programs

    def _accrue(self, n_steps: int) -> None:
        """Add the credit for steps, and subtract the charged time."""
        spent = self._spent / self._base if self._base else 0.0
        earned = min(LOSS * n_steps, max(0.0, START - self._credit))
        self._credit, self._spent = max(-MOST_LOST, self._credit + earned - spent), 0.0

    def longest_rest(self, proposer: str, n_seqs: int, n_vain: int = 0) -> int:
        """Return the maximum steps between two drafts of a proposer.

        With them it takes a share of ``ASKING`` of the time. While drafts save time, a proposer is asked in each step,
        until it was asked ``PATIENCE`` times in vain (``n_vain``): a new text is not to lose what others saved.
        Beside a program that computes steps by itself ``HostDrafts`` limits that time, so they are few.
        """
        base, latest = self.costs.seconds(n_seqs, n_seqs), self._taken.get(proposer)
        longest = min(LONGEST_REST, int(_median(latest) / (ASKING * base))) if base and latest else 1
        longest = min(longest, PACED_REST) if self._is_paced else longest
        return longest if not self.earns else 1 if n_vain < PATIENCE else min(longest, BRIEF_REST)

    @property
    def recovers(self) -> int:
        """Return the number of steps after which there is credit again, also for later charges; 0 if there is."""
        if self._is_paced:
            return 0
        lacking = (self._spent / self._base if self._base else 0.0) - self._credit
        return 0 if lacking < 0 else min(LONGEST_REST, 1 + int(lacking / LOSS))

    @property
    def earns(self) -> bool:
        """True if drafts saved time lately: more than a step beyond the initial credit."""
        return self._credit > START + 1

    def choose(self, summaries: Sequence[DraftSummary], n_rows: int, room: int) -> list[int]:
        """Return the number of tokens to verify of each sequence's draft.

        Args:
            summaries: drafts of the sequences.
            n_rows: rows of the step without drafts.
            room: maximum drafted tokens of all sequences together.
        """
        if self.fixed >= 0:
            ends = [
                min(room, end) for end in accumulate((min(summary.n, self.fixed) for summary in summaries), initial=0)
            ]
            return [end - begin for begin, end in pairwise(ends)]
        n_seqs = len(summaries)
        chances = [self.acceptance.chances(summary) for summary in summaries]
        first = [own[0] if own else 0.0 for own in chances]
        are_estimated = all(summary.probabilities for summary in summaries if summary.n)
        lengths = self._best(chances, n_rows, room, self._pace.value if are_estimated else None)
        if any(lengths):
            self._n_taken += 1
            if self._n_taken % PROBES == 0 and 2 * sum(lengths) <= room:  # measure the cost of more rows
                longer = [min(2 * length, summary.n) for length, summary in zip(lengths, summaries, strict=True)]
                risk = 1 - min(rate for rate, length in zip(first, lengths, strict=True) if length)
                lengths = longer if self._affords(n_seqs, n_rows, sum(longer), risk) else lengths
        else:
            self._n_declined += self._n_elapsed
            if self._n_declined >= PROBES:
                self._n_declined = 0
                i = max(range(n_seqs), key=first.__getitem__)
                probes = range(min(PROBE, summaries[i].n, room) if first[i] >= LIKELY else 0, 0, -1)
                lengths[i] = next((n for n in probes if self._affords(n_seqs, n_rows, n, 1 - first[i])), 0)
        return lengths

    def _best(self, chances: Sequence[Sequence[float]], n_rows: int, room: int, pace: float | None = None) -> list[int]:
        """Return the lengths that are expected to save most time, of those that there is credit for.

        Args:
            chances: for each sequence, the acceptance rate of each drafted token after those before.
            n_rows: rows of the step without drafts.
            room: maximum drafted tokens of all sequences together.
            pace: time of a token otherwise, in steps without drafts; None: in the step itself. Drafts without
                probabilities then are shorter: their rates are guesses at first, and lost credit comes back slowly.
        """
        lengths, n_seqs = [0] * len(chances), len(chances)
        best, tokens = lengths[:], 0.0
        base = self.costs.seconds(n_seqs, n_rows)
        assert base is not None
        highest = GAIN * base
        coming = [own[0] if own else 0.0 for own in chances]  # probability of each draft's next token
        n_estimated = MOST_PACED * n_seqs if self._is_paced else self.costs.most_rows(n_seqs) - n_rows
        most, risk = min(room, n_estimated), 0.0
        for n_drafted in range(1, most + 1):
            likeliest = max(coming)
            i = coming.index(likeliest)
            risk = max(risk, 1 - chances[i][0]) if chances[i] else 1.0
            if likeliest < UNLIKELY or not self._affords(n_seqs, n_rows, n_drafted, risk):
                break
            tokens += likeliest
            lengths[i] += 1
            coming[i] *= chances[i][lengths[i]] if lengths[i] < len(chances[i]) else 0.0
            seconds = self.costs.seconds(n_seqs, n_rows + n_drafted) or base
            per_token = pace * base / n_seqs if pace is not None else seconds / (n_seqs + tokens)
            saved = tokens * per_token + base - seconds
            if saved > highest:
                highest, best = saved, lengths[:]
        return best

    def _affords(self, n_seqs: int, n_rows: int, n_drafted: int, risk: float) -> bool:
        """Return True if half of the credit covers the time of rows that are rejected with probability ``risk``.

        More rows than were measured may take longer than estimated, so all their time is at risk.
        """
        if self._is_paced:
            return True
        base, seconds = self.costs.seconds(n_seqs, n_rows), self.costs.seconds(n_seqs, n_rows + n_drafted, at_most=True)
        is_measured = 2 * (n_rows + n_drafted) <= self.costs.most_rows(n_seqs)
        risk = max(RISK, risk) if is_measured else 1.0
        return base is not None and seconds is not None and self._credit * base >= 2 * risk * (seconds - base)

    def took(
        self,
        n_seqs: int,
        n_rows: int,
        n_drafted: int,
        n_saved: int,
        seconds: float,
        judging: float = 0.0,
        n_elapsed: int = 1,
    ) -> None:
        """Record the time of a step.

        Args:
            n_seqs: sequences of the step.
            n_rows: rows without drafted tokens.
            n_drafted: drafted tokens.
            n_saved: accepted drafted tokens, but those that a grammar forces.
            seconds: time of the step.
            judging: seconds that proposers took after the step.
            n_elapsed: steps since the latest recorded one, with this one.
        """
        if self.fixed >= 0:
            return
        if n_drafted or not self._is_paced:
            self.costs.took(n_seqs, n_rows + n_drafted, seconds)
        base = self._base = self.costs.seconds(n_seqs, n_rows) or seconds
        usual = self.costs.seconds(n_seqs, n_rows + n_drafted) or seconds
        is_first = n_drafted and self.costs.is_first(n_seqs, n_rows + n_drafted)
        taken = usual if is_first else max(usual, min(seconds, DELAYED * usual))  # estimates of few steps are low
        self._n_drafted = self._n_drafted + 1 if n_drafted else 0
        saved = 1 + n_saved / n_seqs - taken / base if n_drafted else 0.0
        n_before, self._n_steps = n_elapsed - 1, self._n_steps + 1
        self._pace.took(n_before + (taken + self._spent + judging) / base, n_before + 1 + n_saved / n_seqs)
        self._accrue(n_elapsed - self._n_accrued)
        self._credit = max(-MOST_LOST, min(self._credit + saved - judging / base, self._most_saved))
        self._n_accrued, self._n_elapsed = 0, n_elapsed


class _Pace:
    """Mean time of a token in the latest steps, relative to that in a step without drafts, and not above it."""

    def __init__(self) -> None:
        self._seconds = self._n_tokens = PACED

    def took(self, seconds: float, n_tokens: float) -> None:
        """Add steps of a sequence, whose time is relative to that of a step without drafts."""
        fading = PACING ** min(n_tokens, seconds)
        self._seconds = fading * self._seconds + seconds
        self._n_tokens = fading * self._n_tokens + n_tokens

    @property
    def value(self) -> float:
        return min(1.0, self._seconds / self._n_tokens)


def class_of(n_rows: int) -> int:
    """Return the class of a number of rows: those of a class are computed by the same kernels."""
    return (n_rows - 1).bit_length()


def _median(values: Collection[float]) -> float:
    return sorted(values)[len(values) // 2]
