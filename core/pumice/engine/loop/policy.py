"""Scheduling policies: which sequences are admitted or preempted, and how many tokens of prompts each step reads.

Also turns: of clients in the queue, whose cost does not depend on its length, and of kinds of work on the device.
Nothing here depends on the clock: shares are counted in rows of steps, and times in steps, so that a run of requests
is scheduled in the same way each time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

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
        return -job.terms.priority, job.turn

    def gives_way(self, active: Sequence[Job], waiting: Job, now: int) -> Job | None:
        priority = waiting.terms.priority
        below = [item for item in active if item.terms.priority < priority and not self._stays(item, now)]
        if below:
            return self.yields_blocks(below, now)
        above = math.inf if now - waiting.waits_since >= self.patience else priority
        over = [item for item in active if priority <= item.terms.priority <= above and self._over(item, now)]
        return min(over, key=lambda item: item.admitted, default=None)

    def yields_blocks(self, active: Sequence[Job], now: int) -> Job:
        return max(active, key=lambda item: (not self._stays(item, now), -item.terms.priority, item.admitted))

    def share(self, active: Sequence[J], room: int, now: int) -> list[tuple[J, int]]:
        def place(each: J) -> tuple[bool, bool, int, int, int]:
            in_time = each.began is not None or now - each.waits_since < self.patience
            return each.reads_on, in_time, -each.terms.priority, each.last_step, each.admitted

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


BACKGROUND = 0.1
"""Weight of a client beside others of a higher priority."""


class ClientTurns:
    """Numbers jobs so that clients alternate, and the requests of one client, and a request of many texts goes last.

    The first job of a client's n-th waiting request has turn n, counted from the last admitted job's, and each further
    job of the request a turn more.
    """

    def __init__(self) -> None:
        self._now = 0  # the turn of the job that was admitted last
        self._latest: dict[Hashable, int] = {}  # of clients, and of their requests
        self._most = 64  # entries before the outdated ones are removed

    def next(self, client: str, request: Hashable) -> int:
        """Return the turn of a request's next job; requests without a client stand alone."""
        key = client, request
        turn = 1 + self._latest.get(key, 0)
        if turn <= self._now + 1:
            turn = 1 + max(self._now, self._latest.get(client, 0) if client else 0)
            self._latest[client] = turn
        self._latest[key] = turn
        if len(self._latest) > self._most:
            self._latest = {key: turn for key, turn in self._latest.items() if turn > self._now}
            self._most = 64 + 2 * len(self._latest)
        return turn

    def admitted(self, turn: int) -> None:
        """Record that a job of this turn has got a place."""
        self._now = max(self._now, turn)


class WaitingJobs(Generic[J]):
    """Waiting jobs in the order of a policy; one that has waited for its ``patience`` is next.

    Jobs that are not ready wait aside, and keep their number.
    """

    def __init__(self, policy: SchedulingPolicy) -> None:
        self.policy = policy
        self._entries: OrderedDict[J, int] = OrderedDict()  # ready ones
        self._aside: dict[J, int] = {}
        self._heap: list[tuple[tuple[float, ...], int, J]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._entries) + len(self._aside)

    def __contains__(self, job: object) -> bool:
        return job in self._entries or job in self._aside

    def __iter__(self) -> Iterator[J]:
        yield from self._entries
        yield from self._aside

    @property
    def n_ready(self) -> int:
        return len(self._entries)

    def add(self, job: J) -> None:
        """Add a job; its place in the order does not change while it waits."""
        self._aside[job] = next(self._numbers)
        if job.ready:
            self._queue(job)

    def _queue(self, job: J) -> None:
        self._entries[job] = number = self._aside.pop(job)
        heappush(self._heap, (self.policy.key(job), number, job))

    def remove(self, job: J) -> None:
        """Remove a job; does nothing if it does not wait."""
        self._aside.pop(job, None)
        self._entries.pop(job, None)
        if len(self._heap) > 64 + 2 * len(self._entries):
            self._heap = sorted(entry for entry in self._heap if self._entries.get(entry[2]) == entry[1])

    def wake(self) -> None:
        """Queue jobs that have become ready."""
        for job in [job for job in self._aside if job.ready]:
            self._queue(job)

    def first(self, now: int) -> J | None:
        """Return the next job to admit after ``now`` steps."""
        while self._heap and self._entries.get(self._heap[0][2]) != self._heap[0][1]:
            heappop(self._heap)
        if not self._heap:
            return None
        longest = next(iter(self._entries))
        is_patient = now - longest.waits_since < self.policy.patience
        return self._heap[0][2] if is_patient else longest


class Turns:
    """Divides the work of a device between kinds by their weights (stride scheduling, Waldspurger 1995).

    Work is counted in rows (``SchedulingPolicy.cost``), so that the order of steps is the same each time.
    """

    def __init__(self) -> None:
        self._used: dict[str, float] = {}  # cost by weight
        self._working: set[str] = set()  # the kinds that have work

    def next(self, weights: Mapping[str, float]) -> str:
        """Return the kind whose turn it is, of those that have work."""
        self._meet(weights)
        return min(weights, key=lambda kind: self._used[kind])

    def took(self, kind: str, cost: float, weights: Mapping[str, float]) -> None:
        """Record the cost of a step of a kind, while these had work."""
        self._meet(weights)
        if kind in weights:
            self._used[kind] += cost / weights[kind]

    def _meet(self, weights: Mapping[str, float]) -> None:
        """Let kinds begin beside those that go on: nothing was saved without work, and nothing owed is forgotten."""
        least = min((self._used[kind] for kind in weights if kind in self._working), default=None)
        if least is None:
            least = max(self._used.values(), default=0.0)
        for kind in weights.keys() - self._working:
            self._used[kind] = max(self._used.get(kind, 0.0), least)
        self._working = set(weights)


def weights_of(active: Sequence[Job]) -> dict[str, float]:
    """Return the weights of the kinds of sequences with a place.

    Clients weigh the same, whose requests share their weight; those below the highest priority weigh a tenth.
    """
    highest = max((item.terms.priority for item in active), default=0)
    requests: dict[tuple[Hashable, str, Hashable], float] = {}
    for item in active:
        name = item.request_name
        weight = 1.0 if item.terms.priority == highest else BACKGROUND
        requests[item.terms.client or name, item.kind, name] = weight
    n_requests = Counter(client for client, _, _ in requests)
    weights: dict[str, float] = {}
    for (client, kind, _), weight in requests.items():
        weights[kind] = weights.get(kind, 0.0) + weight / n_requests[client]
    return weights
