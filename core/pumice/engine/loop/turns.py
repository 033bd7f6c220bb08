"""Turns: of clients in the queue, whose cost does not depend on its length, and of kinds of work on the device."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from pumice.engine.loop.policy import SchedulingPolicy
from pumice.engine.requests.job import Job

J = TypeVar("J", bound=Job)

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
    highest = max((item.priority for item in active), default=0)
    clients: dict[Hashable, dict[tuple[str, Hashable], float]] = {}
    for item in active:
        name = item.request_name
        requests = clients.setdefault(item.client or name, {})
        requests[item.kind, name] = 1.0 if item.priority == highest else BACKGROUND
    weights: dict[str, float] = {}
    for requests in clients.values():
        for (kind, _), weight in requests.items():
            weights[kind] = weights.get(kind, 0.0) + weight / len(requests)
    return weights
