"""Decide whether drafts of the host pay beside the steps that a program computes by itself.

A program that picks tokens computes several steps per submission, and each submission behind the one before. A step
whose drafts the host proposes and verifies waits for the host, so it competes with the pace of such steps, not with the
time of a single one.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass, field

from pumice.engine.draft_length import class_of

Names = frozenset[str]
Kind = tuple[int, Names, bool]
"""A kind of batch: the number of its sequences, their proposers, and whether a pick is restricted."""

LOSS = 0.007  # share of time that drafts may take from steps of the program
LOST_BEFORE = 0.015  # maximum share of all time that drafts had lost in all kinds when a trial begins
START = 6.0  # initial credit for drafts, in steps of the program
MOST_SAVED = 12.0  # maximum credit from earlier gains, in steps
OPENS = 1.0  # credit with which drafts begin again, at first
MOST_COST = 16.0  # maximum time charged for a step, in steps of the program, unless the one before took as long, too
DELAYED = 1.5  # maximum time charged for a step whose usual time is known, relative to that
FIRST_COST = 1.5  # ... for the first step with such a number of rows, which contains what is done once
N_FIRST = 3  # first steps of the host that are charged no more than FIRST_COST, since proposers begin in them
MOST_FIRST = 8.0  # steps that a first trial may lose, also where less was charged
N_FIRST_TRIAL = 6  # steps of the host within which it ends then
KEPT = 9  # latest measurements of the pace
LEAST = 5  # measurements of the pace before drafts begin
MEASURED = 8  # steps of a submission that measures the pace
RENEWED = 256  # steps of the host after which the pace is measured again


@dataclass
class _Balance:
    """The pace of a kind of batch, and what drafts of the host gained or lost beside it.

    Attributes:
        paces: latest seconds per step of submissions behind others.
        credit: steps that drafts may lose.
        is_open: whether the host may draft.
        opens: credit with which it may again: more after each trial in which no step gained anything, since its first
            steps, such as those in which a layer hears the latest tokens, may take all of the credit.
        has_gained: whether a step of the current trial gained anything.
        has_loan: whether it was lent credit.
        n_measured: measurements since the pace was last renewed.
        n_drafted: steps of the host since then.
        started: classes of numbers of rows that were computed.
        n_host: steps of the host.
        lost: steps that the latest step of the host lost.
        lost_first: steps that those of the first trial lost, without what is done once.
    """

    paces: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    credit: float = START
    is_open: bool = True
    opens: float = OPENS / 2
    has_gained: bool = False
    has_loan: bool = False
    n_measured: int = 0
    n_drafted: int = 0
    started: set[int] = field(default_factory=set)
    n_host: int = 0
    lost: float = 0.0
    lost_first: float = 0.0

    @property
    def is_measured(self) -> bool:
        return self.n_measured >= LEAST

    @property
    def pace(self) -> float:
        """Return the lower third of the latest measurements, which other programs delayed least."""
        return sorted(self.paces)[len(self.paces) // 3]


class HostDrafts:
    """Limits what drafts of the host lose beside steps that a program computes by itself.

    First the pace of the program is measured,
    without drafts. Then the host drafts while there is credit: ``START`` steps, a small share of the time of the
    program's steps (``LOSS``), and what drafts gained lately. All time from one result to the next counts: proposing,
    verifying, single steps without drafts, and the start of the next submission. Without credit the program computes
    steps by itself until there is some again, and what was really lost in all kinds of batches is at most a share of
    the time since the model was loaded (``LOST_BEFORE``). So drafts that cannot pay take a trial and that share.
    """

    def __init__(self) -> None:
        self._kinds: defaultdict[Kind, _Balance] = defaultdict(_Balance)
        self._seconds = 0.0  # of all steps of kinds with a pace
        self._lost = 0.0  # seconds that drafts lost beside what they gained

    def n_free(self, kind: Kind) -> int:
        """Return the number of next steps that are left to the program; 0: the host may draft."""
        own = self._kinds[kind]
        if not own.is_measured:
            return MEASURED
        n_owed = self._owed / own.pace
        if own.is_open and (own.credit <= 0 or (n_owed > 0 and not own.n_host)):
            own.is_open, own.opens = False, OPENS if own.has_gained else min(2 * own.opens, START)
        elif not own.is_open and own.credit >= own.opens and n_owed <= 0:
            own.is_open, own.has_gained = True, False
        return 0 if own.is_open else max(1, math.ceil(max((own.opens - own.credit) / LOSS, n_owed)))

    @property
    def _owed(self) -> float:
        """The seconds of steps without drafts until a trial may begin."""
        return self._lost / LOST_BEFORE - self._seconds

    def has_pace(self, kind: Kind) -> bool:
        """Return True if the pace of a kind is known."""
        return bool(self._kinds[kind].paces)

    def lend(self, kind: Kind) -> None:
        """Give a kind ``START`` further steps of credit, once, since measured times and acceptance promise a gain."""
        own = self._kinds[kind]
        if own.is_open and own.credit <= 0 and not own.has_loan:
            own.credit, own.has_loan = own.credit + START, True

    def give_up(self, kind: Kind) -> None:
        """End a trial, since the measured times are too long for any draft."""
        own = self._kinds[kind]
        own.credit = min(own.credit, 0.0)

    def rests(self, names: Names) -> bool:
        """Return True if no kind of batch that was tried may draft with these proposers."""
        tried = [own for (_, others, _), own in self._kinds.items() if others == names and own.paces]
        return bool(tried) and not any(own.is_open for own in tried)

    def pace(self, kind: Kind) -> float:
        """Return the measured seconds of a step that the program computes by itself, once ``n_free`` was 0."""
        return self._kinds[kind].pace

    def ran(self, kind: Kind, n_tokens: float, seconds: float) -> None:
        """Record a submission without drafts behind another one: tokens per sequence, seconds between their results."""
        own = self._kinds[kind]
        own.paces.append(seconds / n_tokens)
        own.n_measured, own.n_drafted = own.n_measured + 1, 0
        own.credit += min(LOSS * n_tokens, max(0.0, START - own.credit))
        self._seconds += seconds

    def drafted(
        self,
        kind: Kind,
        n_rows: int,
        n_tokens: float,
        seconds: float,
        is_new: bool = False,
        usual: float | None = None,
    ) -> None:
        """Record a step of the host, or what the program computed right after one.

        Args:
            kind: the kind of batch.
            n_rows: rows of the step.
            n_tokens: tokens per sequence that it gave.
            seconds: time since the result before.
            is_new: whether a step of a new size was prepared meanwhile, so that it is no measurement of a loss.
            usual: usual seconds of such a step, if they are known. A longer one was delayed by other programs, unless
                the one before was, too.
        """
        own = self._kinds[kind]
        if not own.paces:
            return
        rows = class_of(n_rows)
        is_first = rows not in own.started or own.n_host < N_FIRST
        own.started.add(rows)
        own.n_host += 1
        most_once = MOST_COST if usual is None else min(MOST_COST, DELAYED * usual / own.pace)
        most_delayed = MOST_COST if is_new else max(most_once, own.lost)
        most = 0.0 if is_new else FIRST_COST if is_first else most_delayed
        own.lost = seconds / own.pace - n_tokens
        lost = min(own.lost, most_delayed)
        own.has_gained = own.has_gained or own.lost < 0
        own.credit = min(own.credit - min(own.lost, most), MOST_SAVED)
        own.lost_first += 0.0 if is_new else lost
        if own.n_host <= N_FIRST_TRIAL and own.lost_first > MOST_FIRST:
            self.give_up(kind)
        own.n_drafted += 1
        self._seconds += n_tokens * own.pace
        self._lost = max(0.0, self._lost + lost * own.pace)
        if own.n_drafted >= RENEWED:
            own.n_measured = own.n_drafted = 0
