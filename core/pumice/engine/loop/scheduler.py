"""The scheduler: which sequences take part in the next step, what becomes of their tokens, and how requests end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any, TypeVar

from pumice.backend.step import Limits
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.loop.places import Lane, Places
from pumice.engine.messages import EngineFinishReason, Event
from pumice.engine.requests.generation import Generation, Members
from pumice.engine.requests.job import Job
from pumice.engine.requests.reading import Reading, ReadMembers
from pumice.sampler import make_masks

J = TypeVar("J", bound=Job)


class Scheduler:
    """Chooses the members of each step, and keeps the requests from their arrival to their end.

    Args:
        ended: called with ended generations.

    Attributes:
        jobs: the requests that have not ended, by their ids: of several readings the first.
        events: beginnings, progress and ends of requests, until they are drained.
    """

    def __init__(
        self, limits: Limits, places: Places, cache: KVCache, ended: Callable[[Generation], None] = lambda _: None
    ) -> None:
        self.limits = limits
        self.policy = places.policy
        self.places = places
        self.running = places.generations.active
        self.readers = places.readings.active
        self.waiting = places.generations.waiting
        self.jobs: dict[int, Job] = {}
        self.events: list[Event] = []
        self._cache = cache
        self._ended = ended
        self._image_was_last = False  # the last step read an image alone
        self._deadlines: list[tuple[float, int]] = []  # with ids of requests

    @property
    def reads(self) -> bool:
        """True if there are readings."""
        return bool(self.readers or self.places.readings.waiting)

    @property
    def generates(self) -> bool:
        """True if there are generations."""
        return bool(self.running or self.waiting)

    # --- arrival and admission

    def add(self, jobs: Sequence[Job]) -> None:
        """Queue the jobs of a request."""
        first = jobs[0]
        self.jobs[first.id] = first
        if first.deadline is not None:
            heappush(self._deadlines, (first.deadline, first.id))
        for job in jobs:
            self.places.queue(job)

    def may_admit(self) -> bool:
        """True if other work than the running generations waits for its turn, or could be admitted."""
        if self.reads or any(running.tables.wanted for running in self.running):
            return True
        first = self.waiting.first(self.places.n_steps)
        return first is not None and (
            self.places.may_enter(first) or self.policy.gives_way(self.running, first, self.places.n_steps) is not None
        )

    def admit(self) -> None:
        """Admit waiting jobs, preempting others if the policy decides so, and load their blocks from tiers.

        Blocks come first to the sequence that is next, whatever its kind: others wait until it has them.
        """
        places = self.places
        places.forget_demand()
        self.waiting.wake()
        lanes: list[Lane[Any]] = [places.generations, places.readings]
        while (job := places.next(lanes)) is not None:
            try:
                entered = places.enter(job)
            except Exception as error:
                self.fail_job(job, error)
                continue
            if entered:
                job.begin()
                self.events += [] if job.tables.wanted else job.loaded()
            elif loser := places.gives_way(job):
                places.put_back(loser, gives_way=True)
            elif places.lacks_blocks(job):
                break
            else:  # it waits for a slot of its kind
                lanes.remove(places.lane(job))
        for running in places.load():
            self.events += running.loaded()

    # --- selection of the next batch

    def choose(self, busy: Collection[Generation] = (), most: int | None = None) -> Members:
        """Return the generations of the next batch and their numbers of tokens; blocks are held for them.

        ``busy``: sequences in submitted steps. ``most``: maximum number of sequences.
        """
        self.admit()
        members: Members = []
        taken = set(busy)
        free = [running for running in self.running if running not in taken and not running.tables.wanted]
        n_running = len(self.running)
        for running, n_shared in self._apart(self.policy.share(free, self.limits.n_batch, self.places.n_steps)[:most]):
            # A step reads an image whole; its states within are not kept.
            n_kept = next((mark - running.n_past for mark in running.tables.marks if mark > running.n_past), n_shared)
            n_new = n_shared if running.n_together else min(n_shared, n_kept)
            is_current = len(self.running) == n_running or running in self.running  # else preempted for one before
            if is_current and self.places.hold(running, running.n_ahead + n_new, members):
                members.append((running, n_new))
        return [member for member in members if member[0].undecided] or members

    def choose_readers(self, kind: str) -> ReadMembers:
        """Return the readings of a kind in the next step and their numbers of tokens; blocks are held for them.

        Beside generations, the step reads as many tokens as a step may read of prompts.
        """
        members: ReadMembers = []
        free = [reader for reader in self.readers if reader.kind == kind]
        n_rows = self.n_rows(kind)
        room = self.limits.n_batch
        if self.running and free and not free[0].whole:
            room = self.policy.beside(room)
        for reader, n_shared in self._apart(self.policy.share(free, room, self.places.n_steps)):
            if reader not in self.readers:
                continue  # preempted for one before
            n_new = reader.pending if reader.whole else reader.fit(n_shared, n_rows)
            if n_new < 1 or (members and (n_new > n_shared or not n_rows)):
                continue
            if self.places.hold(reader, n_new, members):
                members.append((reader, n_new))
                n_rows -= len(reader.wanted_rows(n_new, n_rows))
            if kind == "measure":
                break
        return members

    def n_rows(self, kind: str) -> int:
        """Return the output rows of a step of readings."""
        has_logits = kind in ("logits", "measure", "speak")
        return self.limits.n_outputs if has_logits else self.limits.n_batch

    def _apart(self, members: Sequence[tuple[J, int]]) -> list[tuple[J, int]]:
        """Return either an image whose positions attend to each other, alone, or the other members, in turns."""
        images = [active for active, _ in members if active.n_together]
        if images and (len(images) == len(members) or not self._image_was_last):
            self._image_was_last = True
            return [(images[0], images[0].n_together)]
        self._image_was_last = False
        return [(active, active.before_media(n)) for active, n in members if active not in images]

    # --- progress of sequences

    def computed(self, running: Generation, n_new: int) -> None:
        """Record that a sequence's next tokens are in the cache."""
        running.n_past += n_new
        running.n_ahead = max(0, running.n_ahead - n_new)
        running.n_again = 0
        running.last_step = self.places.n_steps
        if running.began is None and running.n_unread == 0:
            running.began = self.places.n_steps
        self._cache.publish(running.tables, running.known, running.n_past)

    def read(self, reader: Reading[Any], n_new: int) -> None:
        """Record that a step has computed a reading's next tokens; a whole sequence is read until it is done."""
        reader.last_step = self.places.n_steps
        if not reader.whole or reader.done:
            reader.n_past += n_new
        if reader.began is None and not reader.reads_on:
            reader.began = self.places.n_steps
        if reader.known:
            self._cache.publish(reader.tables, reader.known, reader.n_past)

    def take(self, tokens: Sequence[tuple[Generation, int]], least_forced: int = 1) -> None:
        """Append a token to each sequence, or end it; an error of a sampler fails only its sequence.

        ``least_forced``: see ``Generation.follow_mask``.
        """
        for running, token in tokens:
            running.undecided = False
            try:
                running.accept(token)
            except Exception as error:
                self.fail([running], error)
        current = [running for running, _ in tokens if not running.finish_reason]
        masked = [running for running in current if running.chain.masking]
        with suppress(Exception):  # then each mask is made alone, with its own error
            make_masks([running.chain for running in masked])
        for running in masked:
            try:
                running.follow_mask(least_forced)
            except Exception as error:
                self.fail([running], error)
        for running in current:
            self._shift_full(running)

    def take_all(self, running: Generation, tokens: Sequence[int]) -> None:
        """Append consecutive tokens to a sequence, each of which but the last is computed, up to its end."""
        running.undecided = False
        n_taken = 0
        try:
            running.chain.skip(len(tokens))
            while n_taken < len(tokens) and not running.finish_reason:
                running.accept(tokens[n_taken])
                n_taken += 1
        except Exception as error:
            self.fail([running], error)
            return
        if n_taken > 1:
            self.computed(running, n_taken - 1)
        self._shift_full(running)

    def _shift_full(self, running: Generation) -> None:
        """Shorten a sequence that exceeds the context, to be read again, or finish it."""
        if len(running.tokens) <= running.n_ctx or running.finish_reason:
            return
        n_keep = min(running.n_keep, len(running.tokens) // 2)
        n_discard = (len(running.tokens) - n_keep) // 2
        if not running.request.context_shift or n_discard == 0:
            running.finish_reason = "context_full"
            return
        del running.tokens[n_keep : n_keep + n_discard]
        self.places.begin_again(running)

    # --- the end of requests

    def fail(self, failed: Sequence[Job], error: Exception) -> None:
        """Fail the requests of sequences with an error; nothing that they computed is kept."""
        for job in list(failed):
            self.fail_job(job, error)

    def fail_job(self, job: Job, error: Exception) -> None:
        """Fail the request of a waiting or running job with an error."""
        if job.id in self.jobs:
            self._end(job, job.fail(error), keeps=False)

    def stop(self, id: int, reason: EngineFinishReason) -> None:
        """End a request before its time; what it has computed stays cached."""
        if job := self.jobs.get(id):
            if job in self.places.lane(job).waiting:
                job.begin()
            self._end(job, job.stop(reason))

    def end_late(self) -> None:
        """End requests whose deadline has passed."""
        now = time.perf_counter()
        while self._deadlines and self._deadlines[0][0] <= now:
            self.stop(heappop(self._deadlines)[1], "timeout")

    def retire(self) -> None:
        """End the generations that are finished."""
        for running in [running for running in self.running if running.finish_reason]:
            self._end(running, running.end())

    def end_reading(self, reader: Reading[Any]) -> None:
        """Release the place of a reading that is done, and end its request after the last one."""
        if reader in self.readers:
            self.places.release(reader)
            events = reader.end()
            if not reader.request.n_left:
                self._end(reader, events)

    def _end(self, job: Job, events: Sequence[Event], keeps: bool = True) -> None:
        """Let all jobs of a request leave; ``keeps``: what they have computed stays cached."""
        del self.jobs[job.id]
        if len(self._deadlines) > 64 + 2 * len(self.jobs):
            self._deadlines = sorted(entry for entry in self._deadlines if entry[1] in self.jobs)
        for other in job.siblings:
            if other.slot < 0:
                self.places.lane(job).waiting.remove(other)
            else:
                self.places.release(other, keeps)
        self.events += events
        if isinstance(job, Generation):
            self._ended(job)
