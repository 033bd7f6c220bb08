"""Scheduling policies: which sequences are admitted or preempted, and how many tokens of prompts each step reads."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from pumice.engine.loop.step_times import StepTimes
from pumice.engine.requests.job import Active, Job

_FEW = 4  # generating sequences that see shorter gaps beside prompts; from twice as many on none do

A = TypeVar("A", bound=Active)


class SchedulingPolicy(ABC):
    """Decisions of an engine before and after each step. A policy may keep state, but does not change arguments."""

    patience: float = math.inf
    """Seconds of waiting after which a sequence is next, whatever its key."""

    @abstractmethod
    def key(self, job: Job) -> tuple[float, ...]:
        """Return what orders waiting sequences, the least first; called once for each time that a sequence waits."""

    @abstractmethod
    def gives_way(self, active: Sequence[Active], waiting: Job) -> Active | None:
        """Return the sequence to preempt so that ``waiting`` can be admitted; None for none yet."""

    @abstractmethod
    def yields_blocks(self, active: Sequence[Active]) -> Active:
        """Return the sequence to preempt when blocks run out, from a non-empty list of those outside the batch."""

    @abstractmethod
    def share(self, active: Sequence[A], room: int) -> list[tuple[A, int]]:
        """Return the members of the next step with their tokens, at most ``room`` in total; the first must get some."""

    def beside(self, n_generating: int, room: int) -> int:
        """Return the tokens of a step of other work while sequences generate, at most ``room``."""
        return room

    def took(self, members: Sequence[tuple[Active, int]], seconds: float) -> None:  # noqa: B027 - a policy may not want to know
        """Record the seconds of a step with these members."""


class FairPolicy(SchedulingPolicy):
    """Generation before prompts, without starvation.

    Args:
        max_delay: maximum seconds of a step while others generate, which limits the prompt tokens that it reads, by
            the times of earlier steps; at least one token is read. Where generation alone takes longer than half of it,
            twice the time of such a step, so that prompts are read in as much time as generation has; not with
            ``step_sizes``.
        quantum: seconds of generation after which a sequence is preempted for a waiting one, at least as long as its
            prompt took. So none starves, and reading prompts again takes less than half of the time.
        patience: seconds of waiting after which a sequence is next, whatever its priority, and stays for a quantum.
        step_sizes: as in ``Capabilities``. A step beside generating sequences then reads as many tokens of prompts as
            one of these sizes holds.
        few_delay: ``max_delay`` beside up to four generating sequences, which then see shorter gaps, while more of them
            lose less by longer steps; it grows up to that of eight. None: the same.

    Otherwise higher priorities are admitted first and preempt lower ones at once, but never the other way round.
    """

    def __init__(
        self,
        max_delay: float = 0.05,
        quantum: float = 5.0,
        patience: float = 30.0,
        step_sizes: Sequence[int] = (),
        few_delay: float | None = None,
    ) -> None:
        self.max_delay = max_delay
        self.few_delay = max_delay if few_delay is None else few_delay
        self.quantum = quantum
        self.patience = patience
        self._times = StepTimes(step_sizes) if step_sizes else None
        self._seconds_per_token: deque[float] = deque(maxlen=3)  # of prompts; the first step of a size may be slow
        self._generating_seconds: deque[float] = deque(maxlen=3)  # of steps without prompts

    def key(self, job: Job) -> tuple[float, ...]:
        return -job.priority, job.turn

    def gives_way(self, active: Sequence[Active], waiting: Job) -> Active | None:
        now, priority = time.perf_counter(), waiting.priority
        below = [item for item in active if item.priority < priority and not self._stays(item, now)]
        if below:
            return self.yields_blocks(below)
        above = math.inf if now - waiting.waits_since >= self.patience else priority
        over = [item for item in active if priority <= item.priority <= above and self._over(item, now)]
        return min(over, key=lambda item: item.admitted, default=None)

    def yields_blocks(self, active: Sequence[Active]) -> Active:
        now = time.perf_counter()
        return min(active, key=lambda item: (self._stays(item, now), item.priority, -item.admitted))

    def share(self, active: Sequence[A], room: int) -> list[tuple[A, int]]:
        before = time.perf_counter() - self.patience

        def place(each: A) -> tuple[bool, bool, int, int, float]:
            in_time = each.began is not None or each.waits_since > before
            return each.reads_on, in_time, -each.priority, each.last_step, each.admitted

        order = sorted(active, key=place)
        members: list[tuple[A, int]] = []
        budget = room
        for sequence in order:
            if sequence.reads_on and members:
                budget = min(budget, self._prompt_tokens(members, room))
            n_new = min(sequence.pending, budget)
            if n_new > 0:
                members.append((sequence, n_new))
                budget -= n_new
        return members

    def took(self, members: Sequence[tuple[Active, int]], seconds: float) -> None:
        n_read = sum(n_new for _, n_new in members if n_new > 1)
        if not n_read:
            self._generating_seconds.append(seconds)
            return
        if self._times:
            self._times.took(sum(n_new for _, n_new in members), seconds)
        self._seconds_per_token.append(seconds / n_read)

    def _prompt_tokens(self, members: Sequence[tuple[A, int]], room: int) -> int:
        """Return the number of prompt tokens that may be read beside generating sequences."""
        reading = [n_new for running, n_new in members if running.reads_on]
        if len(reading) == len(members):
            return room
        n_others = sum(n_new for running, n_new in members if not running.reads_on)
        return self._tokens_beside(len(members) - len(reading), n_others) - sum(reading)

    def beside(self, n_generating: int, room: int) -> int:
        return min(room, self._tokens_beside(n_generating, 0))

    def _tokens_beside(self, n_generating: int, n_others: int) -> int:
        """Return the tokens that a step may read beside generating sequences, which compute ``n_others``."""
        delay = self._delay(n_generating)
        if self._times and self._seconds_per_token:
            return self._times.largest(delay, n_others + 1) - n_others
        fastest = min(self._seconds_per_token, default=delay / 32)
        is_settled = len(self._generating_seconds) == self._generating_seconds.maxlen  # the first one may be slow
        generating = min(self._generating_seconds) if is_settled else 0.0
        if 2 * generating > delay:
            delay, fastest = 2 * generating, min(fastest, generating)  # such a step computes a token, too
        return max(1, int(delay / fastest))

    def _delay(self, n_generating: int) -> float:
        """Return the maximum seconds of a step beside ``n_generating`` sequences."""
        share = min(max(n_generating / _FEW - 1, 0.0), 1.0)
        return self.few_delay + share * (self.max_delay - self.few_delay)

    def _stays(self, running: Active, now: float) -> bool:
        """Return True if it was admitted recently after a long wait."""
        return running.admitted - running.waits_since >= self.patience and not self._over(running, now)

    def _over(self, running: Active, now: float) -> bool:
        if running.began is None:
            return False
        return now - running.began >= max(self.quantum, running.began - running.admitted)
