"""Contention for cores: whether all threads run a table of operations, or one alone.

Threads that meet after every operation wait for the slowest. Where other programs use the same cores, each meeting
may last until the system's scheduler gives the missing thread its turn, some milliseconds later, and one thread that
meets nobody may be far quicker. Large operations that share out their parts as they go still gain by several threads:
what takes less time decides.
"""

from __future__ import annotations

import math

COLD = 2  # first steps of a table, which are not looked at: they touch memory for the first time
SETTLED = 8  # steps before which what is known of a table may mislead: threads tell of their work a step late
RECENT = 1 / 16  # of a mean: the part that is the latest step's
FORGET = 1.01  # per step: how much longer the quickest step is taken to be
TRIAL = 8  # steps
PATIENCE = 32  # times as long as the slower way took, until it is tried again


class Pace:
    """Of steps of one table and of about as many tokens: whether all threads run them, or one.

    One thread alone is tried when it may be quicker: if all threads' work, or the quickest step times their number,
    is less than a step takes. It is quicker if its trial is. Several threads are tried again from time to time.
    """

    def __init__(self, n_threads: int, adaptive: bool = True) -> None:
        """``adaptive`` False: all threads, always."""
        self.is_alone = n_threads == 1
        self._adaptive = adaptive
        self._n_threads = n_threads
        self._n_steps = 0
        self._mean = math.nan  # seconds a step, this way
        self._work = math.nan  # seconds for which all threads together had cores, in a step
        self._quickest = math.inf  # seconds; a step of all threads
        self._next_trial = -math.inf  # seconds, on a clock
        self._trial: list[float] = []  # seconds of its steps so far

    def choose(self, now: float) -> bool:
        """Whether one thread is to run the next step alone."""
        is_trial = bool(self._trial) or (now >= self._next_trial and self._is_worth_it())
        return self.is_alone != is_trial

    def took(self, alone: bool, seconds: float, work: float, now: float) -> None:
        """Note a step. ``work``: the seconds for which its threads had cores, as far as they are told by now."""
        self._n_steps += 1
        if self._n_steps <= COLD:
            return
        if not alone:
            self._quickest = min(self._quickest * FORGET, seconds)
            self._work = _mean(self._work, work)
        if alone == self.is_alone:
            self._mean = _mean(self._mean, seconds)
        else:
            self._trial.append(seconds)
            self._judge(now)

    @property
    def seconds(self) -> float:
        """What a step takes in the way that is chosen."""
        return self._mean

    def _is_worth_it(self) -> bool:
        if not self._adaptive:
            return False
        if self.is_alone:
            return self._n_threads > 1
        return self._n_steps >= SETTLED and min(self._quickest * self._n_threads, self._work) < self._mean

    def _judge(self, now: float) -> None:
        """End a trial that is lost, or won."""
        spent = sum(self._trial)
        is_lost = spent > TRIAL * self._mean
        if not is_lost and len(self._trial) < TRIAL:
            return
        slower = spent if is_lost else self._mean
        if not is_lost:
            self.is_alone, self._mean = not self.is_alone, spent / TRIAL
        self._next_trial, self._trial = now + PATIENCE * slower, []


def _mean(before: float, latest: float) -> float:
    return latest if math.isnan(before) else before + RECENT * (latest - before)
