"""Scheduling policies: which sequences are admitted or preempted, and how many tokens of prompts each step reads.

Nothing here depends on the clock: shares are counted in rows of steps, and times in steps, so that a run of requests
is scheduled in the same way each time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from pumice.engine.requests.job import Job

J = TypeVar("J", bound=Job)

HOST_ROWS, GPU_ROWS = 12, 30
"""Rows of a prompt that a processor, and a GPU, computes in the time of a step of few rows.

A processor of two cores computes 32 rows of SmolLM2 135M in 2.3 to 3.5 times the time of 1 to 8, and an H200 512 of
llama-1b or llama-8b in 17 times that.
"""

HOST_BESIDE = 32
"""Tokens of prompts that a processor reads in a step in which others generate, unless ``prefill_tokens`` is set."""


class SchedulingPolicy(ABC):
    """Decisions of an engine before each step. A policy may keep state, but does not change arguments.

    ``now`` is the number of steps computed before, as ``Job.waits_since`` and ``admitted`` are.
    """

    patience: float = math.inf
    """Steps of waiting after which a sequence is next, whatever its key."""

    @abstractmethod
    def key(self, job: Job) -> tuple[float, ...]:
        """Return what orders waiting sequences, the least first; called once for each time that a sequence waits."""

    @abstractmethod
    def gives_way(self, active: Sequence[Job], waiting: Job, now: int) -> Job | None:
        """Return the sequence to preempt so that ``waiting`` can be admitted; None for none yet."""

    @abstractmethod
    def yields_blocks(self, active: Sequence[Job], now: int) -> Job:
        """Return the sequence to preempt when blocks run out, from a non-empty list of those outside the batch."""

    @abstractmethod
    def share(self, active: Sequence[J], room: int, now: int) -> list[tuple[J, int]]:
        """Return the members of the next step with their tokens, at most ``room`` in total; the first must get some."""

    def beside(self, room: int) -> int:
        """Return the tokens of a step of other work while sequences generate, at most ``room``."""
        return room

    def cost(self, members: Sequence[tuple[Job, int]]) -> int:
        """Return the cost of a step, in rows, by which kinds of work share the device."""
        return sum(n_new for _, n_new in members)


class FairPolicy(SchedulingPolicy):
    """Generation before prompts, without starvation.

    Args:
        n_beside: maximum tokens of prompts in a step in which others generate, which bounds the gaps between these
            others' tokens; at least one is read.
        quantum: steps of generation after which a sequence is preempted for a waiting one, at least as many as its
            prompt took. So none starves, and reading prompts again takes less than half of the steps.
        patience: steps of waiting after which a sequence is next, whatever its priority, and stays for a quantum.
        step_rows: rows that take as long as reading the weights, which a step of fewer rows takes, too.

    Otherwise higher priorities are admitted first and preempt lower ones at once, but never the other way round.
    """

    def __init__(
        self, n_beside: int = HOST_BESIDE, quantum: float = 256, patience: float = 2048, step_rows: int = HOST_ROWS
    ) -> None:
        self.n_beside = n_beside
        self.step_rows = step_rows
        self.quantum = quantum
        self.patience = patience

    def key(self, job: Job) -> tuple[float, ...]:
        return -job.priority, job.turn

    def gives_way(self, active: Sequence[Job], waiting: Job, now: int) -> Job | None:
        priority = waiting.priority
        below = [item for item in active if item.priority < priority and not self._stays(item, now)]
        if below:
            return self.yields_blocks(below, now)
        above = math.inf if now - waiting.waits_since >= self.patience else priority
        over = [item for item in active if priority <= item.priority <= above and self._over(item, now)]
        return min(over, key=lambda item: item.admitted, default=None)

    def yields_blocks(self, active: Sequence[Job], now: int) -> Job:
        return max(active, key=lambda item: (not self._stays(item, now), -item.priority, item.admitted))

    def share(self, active: Sequence[J], room: int, now: int) -> list[tuple[J, int]]:
        def place(each: J) -> tuple[bool, bool, int, int, int]:
            in_time = each.began is not None or now - each.waits_since < self.patience
            return each.reads_on, in_time, -each.priority, each.last_step, each.admitted

        members: list[tuple[J, int]] = []
        generates = False
        for sequence in sorted(active, key=place):
            if not sequence.reads_on:
                generates = True
            elif generates:
                n_read = sum(n_new for other, n_new in members if other.reads_on)
                room = min(room, max(1, self.n_beside) - n_read)
            n_new = min(sequence.pending, room)
            if n_new > 0:
                members.append((sequence, n_new))
                room -= n_new
        return members

    def beside(self, room: int) -> int:
        return min(room, max(1, self.n_beside))

    def cost(self, members: Sequence[tuple[Job, int]]) -> int:
        return max(self.step_rows, super().cost(members))

    def _stays(self, running: Job, now: int) -> bool:
        """Return True if it was admitted recently after a long wait."""
        return running.admitted - running.waits_since >= self.patience and not self._over(running, now)

    def _over(self, running: Job, now: int) -> bool:
        if running.began is None:
            return False
        return now - running.began >= max(self.quantum, running.began - running.admitted)
