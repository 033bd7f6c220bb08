"""Steps of different sequences on their way at once: while one stage computes a step, the others compute others."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pumice.engine.batches import batch_of
from pumice.engine.generation import Running
from pumice.engine.kv_cache import KVCache
from pumice.engine.runner import Runner
from pumice.engine.schedule import Members
from pumice.engine.scheduler import Scheduler


@dataclass(eq=False)
class Step:
    """A batch on its way. ``whole``: those of its members whose next token its rows of logits give."""

    members: Members
    whole: list[Running]
    logits: Callable[[], NDArray[np.float32]]
    began: float = field(default_factory=time.perf_counter)


class Overlap:
    """Begins steps until as many are on their way as the runner has use for; each has its part of the sequences."""

    def __init__(self, runner: Runner, scheduler: Scheduler, cache: KVCache) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._cache = cache
        self.steps: deque[Step] = deque()

    def choose(self) -> Members:
        """Who is in the next step: nobody where enough are on their way."""
        if len(self.steps) >= self._runner.n_in_flight:
            return []
        busy = [running for step in self.steps for running, _ in step.members]
        n_waiting = len([each for each in self._scheduler.waiting if each.ready])
        n_all = min(len(self._scheduler.running) + n_waiting, self._scheduler.limits.n_seqs)
        return self._scheduler.choose(busy, -(-n_all // self._runner.n_in_flight))

    def begin(self, members: Members) -> Step:
        batch = batch_of(self._cache, [running.part(n_new) for running, n_new in members])
        whole = [running for running, n_new in members if running.pending == n_new]
        step = Step(members, whole, self._runner.submit(batch))
        for running, _ in members:
            running.n_ahead = 1
        self.steps.append(step)
        return step

    def land(self, step: Step) -> tuple[Members, NDArray[np.float32]]:
        """Wait for a step: those of its members that still run, and the rows of logits of the whole ones of these."""
        self.steps.remove(step)
        try:
            logits = step.logits()
        finally:
            for running, _ in step.members:
                running.n_ahead = 0
        current = set(self._scheduler.running)
        rows = [row for row, running in enumerate(step.whole) if running in current]
        return [(running, n_new) for running, n_new in step.members if running in current], logits[rows]
