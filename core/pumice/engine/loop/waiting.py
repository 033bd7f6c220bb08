"""The waiting jobs, in an order whose cost does not depend on how many there are."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from pumice.engine.loop.policy import SchedulingPolicy
from pumice.engine.requests.job import Job

J = TypeVar("J", bound=Job)


class WaitingJobs(Generic[J]):
    """Waiting jobs in the order of a policy; one that has waited for its ``patience`` is next.

    Jobs that are not ready wait aside.
    """

    def __init__(self, policy: SchedulingPolicy) -> None:
        self.policy = policy
        self._entries: OrderedDict[J, int] = OrderedDict()  # ready ones in order of arrival
        self._aside: dict[J, None] = {}
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
        if not job.ready:
            self._aside[job] = None
            return
        number = next(self._numbers)
        self._entries[job] = number
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
            del self._aside[job]
            self.add(job)

    def first(self) -> J | None:
        """Return the next job to admit."""
        while self._heap and self._entries.get(self._heap[0][2]) != self._heap[0][1]:
            heappop(self._heap)
        if not self._heap:
            return None
        longest = next(iter(self._entries))
        is_patient = time.perf_counter() - longest.waits_since < self.policy.patience
        return self._heap[0][2] if is_patient else longest
