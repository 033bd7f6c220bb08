"""The schedule: who comes in, who gives way, and how much of whose prompt the next step reads. A policy decides."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

from pumice.engine.generation import Generation, Running

Members = list[tuple[Running, int]]
"""Of a batch: who, and how many of its tokens."""


class Policy(ABC):
    """What an engine asks before and after each step. It may keep what it learns; arguments are not changed."""

    @abstractmethod
    def first(self, waiting: Sequence[Generation]) -> Generation:
        """Who comes in next, of those that wait in the order they came; there is at least one."""

    @abstractmethod
    def gives_way(self, running: Sequence[Running], waiting: Generation) -> Running | None:
        """Who goes back to wait so that ``waiting``, for which there is no place, may come in; None: nobody yet."""

    @abstractmethod
    def yields_blocks(self, running: Sequence[Running]) -> Running:
        """Who goes back to wait because blocks ran out, of those outside the batch; there is at least one."""

    @abstractmethod
    def share(self, running: Sequence[Running], room: int) -> Members:
        """Who is in the next step with how many of its tokens, ``room`` in all; the first can always be computed."""

    def took(self, members: Members, seconds: float) -> None:  # noqa: B027 - a policy may not want to know
        """A step of these members took so long."""


class FairPolicy(Policy):
    """Generation before prompts, and nobody for ever.

    Args:
        max_delay: seconds. While others generate, a step reads so much of the prompts as keeps it below that, as far as
            the steps before can tell; one token at least.
        quantum: seconds. A sequence that has generated for so long, and for as long as its prompt took, gives way to
            one that waits: so none starves, and reading again what gave way takes less than half of the time.
        patience: seconds. Who has waited for so long is next, whatever its priority, and stays for a quantum.

    Otherwise higher priorities come in first, and those below give way to them at once; they never give way to those.
    """

    def __init__(self, max_delay: float = 0.05, quantum: float = 5.0, patience: float = 30.0) -> None:
        self.max_delay = max_delay
        self.quantum = quantum
        self.patience = patience
        self._seconds_per_token: deque[float] = deque(maxlen=3)  # of prompts; the first time of a size may be slow

    def first(self, waiting: Sequence[Generation]) -> Generation:
        before = time.perf_counter() - self.patience
        return min(waiting, key=lambda each: (each.waits_since > before, -each.request.priority, each.queued))

    def gives_way(self, running: Sequence[Running], waiting: Generation) -> Running | None:
        now, priority = time.perf_counter(), waiting.request.priority
        below = [each for each in running if each.priority < priority and not self._stays(each, now)]
        if below:
            return self.yields_blocks(below)
        above = math.inf if now - waiting.waits_since >= self.patience else priority
        over = [each for each in running if priority <= each.priority <= above and self._over(each, now)]
        return min(over, key=lambda each: each.admitted, default=None)

    def yields_blocks(self, running: Sequence[Running]) -> Running:
        now = time.perf_counter()
        return min(running, key=lambda each: (self._stays(each, now), each.priority, -each.admitted))

    def share(self, running: Sequence[Running], room: int) -> Members:
        before = time.perf_counter() - self.patience

        def place(each: Running) -> tuple[bool, bool, int, int, float]:
            in_time = each.began is not None or each.waits_since > before
            return each.pending > 1, in_time, -each.priority, each.last_step, each.admitted

        order = sorted(running, key=place)
        members: Members = []
        budget = room
        for each in order:
            if each.pending > 1 and members:
                budget = min(budget, self._prompt_tokens(members, room))
            n_new = min(each.pending, budget)
            if n_new > 0:
                members.append((each, n_new))
                budget -= n_new
        return members

    def took(self, members: Members, seconds: float) -> None:
        n_read = sum(n_new for _, n_new in members if n_new > 1)
        if n_read:
            self._seconds_per_token.append(seconds / n_read)

    def _prompt_tokens(self, members: Members, room: int) -> int:
        """How many tokens of prompts may be read beside those that generate."""
        n_generating = sum(n_new == 1 for _, n_new in members)
        if not n_generating:
            return room
        n_read = sum(n_new for _, n_new in members) - n_generating
        fastest = min(self._seconds_per_token, default=self.max_delay / 32)
        return max(1, int(self.max_delay / fastest)) - n_read

    def _stays(self, running: Running, now: float) -> bool:
        """Whether it came in because it had waited for long, and not long ago."""
        return running.admitted - running.waits_since >= self.patience and not self._over(running, now)

    def _over(self, running: Running, now: float) -> bool:
        if running.began is None:
            return False
        return now - running.began >= max(self.quantum, running.began - running.admitted)
