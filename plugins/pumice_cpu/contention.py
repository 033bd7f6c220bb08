"""Contention for cores: choose between all threads and a single thread for a table of operations.

A barrier after each operation makes all threads wait for the slowest. Where other programs use the same cores, a
barrier may last some milliseconds, until the system schedules the missing thread, and a single thread without barriers
can be much faster. Large operations with dynamic work sharing still gain from several threads. Measured time decides.
"""

from __future__ import annotations

import math

COLD = 2  # first steps of a table, not measured: they touch memory for the first time
SETTLED = 8  # steps before the measurements of a table are reliable: threads report their work a step late
RECENT = 1 / 16  # weight of the latest step in a running mean
FORGET = 1.01  # factor per step by which the recorded time of the fastest step grows
TRIAL = 8  # steps of a trial
PATIENCE = 32  # delay before the slower mode is tried again, in multiples of the time its trial took


class Pace:
    """Choose all threads or one, for steps of one table with a similar number of tokens.

    A single thread is tried if it may be faster: if the work of all threads, or the time of the fastest step times
    their number, is less than the duration of a step. It is kept if the trial was faster. Several threads are tried
    again from time to time.
    """

    def __init__(self, n_threads: int, adaptive: bool = True) -> None:
        """If ``adaptive`` is False, all threads run every step."""
        self.is_alone = n_threads == 1
        self._adaptive = adaptive
        self._n_threads = n_threads
        self._n_steps = 0
        self._mean = math.nan  # seconds per step in the current mode
        self._work = math.nan  # core seconds of all threads together per step
        self._quickest = math.inf  # seconds of the fastest step on all threads
        self._next_trial = -math.inf  # time of the next trial in seconds of the clock
        self._trial: list[float] = []  # seconds of the steps of the current trial

    def choose(self, now: float) -> bool:
        """Return True if one thread runs the next step alone."""
        is_trial = bool(self._trial) or (now >= self._next_trial and self._is_worth_it())
        return self.is_alone != is_trial

    def took(self, alone: bool, seconds: float, work: float, now: float) -> None:
        """Record a step. ``work``: core seconds of its threads, as far as reported."""
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
        """Return the mean duration of a step in the chosen mode."""
        return self._mean

    def _is_worth_it(self) -> bool:
        if not self._adaptive:
            return False
        if self.is_alone:
            return self._n_threads > 1
        return self._n_steps >= SETTLED and min(self._quickest * self._n_threads, self._work) < self._mean

    def _judge(self, now: float) -> None:
        """End a trial that is decided."""
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
