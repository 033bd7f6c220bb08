"""The scheduler: queues, admission, preemption, context shifts, and the resources of running sequences."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import chain, count
from typing import Any, TypeVar

from pumice.backend.step import Limits
from pumice.engine.cache.kv_cache import BlockTables, KVCache
from pumice.engine.loop.policy import SchedulingPolicy
from pumice.engine.loop.states import RecurrentStates
from pumice.engine.loop.waiting import WaitingJobs
from pumice.engine.messages import EngineFinishReason, Event
from pumice.engine.requests.batches import EncoderMemory, Place
from pumice.engine.requests.generation import Generation, Members, Running
from pumice.engine.requests.job import Active, Job
from pumice.engine.requests.reading import Reader, Reading
from pumice.errors import RequestError
from pumice.sampler import make_masks

J = TypeVar("J", Generation, Reading[Any])
A = TypeVar("A", bound=Active)

LOADED_BLOCKS = 16
"""Blocks that are loaded from tiers at a time."""
LOADING_SECONDS = 0.02
"""Seconds for which a step may load from tiers while other sequences run."""
LOADING_ALONE_SECONDS = 0.2
"""Seconds for which a step may load from tiers while no sequence runs; commands wait until then."""

ReadMembers = list[tuple[Reader, int]]
"""The readings of a step, with their numbers of tokens."""


class Scheduler:
    """Allocates slots and cache blocks to sequences; ``policy`` decides between them.

    Generations and readings have slots of their own, so that neither waits for the end of the other, unless slots hold
    recurrent states. All share the blocks.

    Args:
        reads_whole: whether steps of a kind of readings compute whole sequences.
        ended: called with ended generations.

    ``events``: beginnings and ends of sequences, until they are drained.
    """

    def __init__(
        self,
        limits: Limits,
        policy: SchedulingPolicy,
        cache: KVCache,
        states: RecurrentStates,
        ended: Callable[[Generation], None],
        reads_whole: Callable[[str], bool] = lambda kind: False,
        is_recurrent: bool = False,
    ) -> None:
        self.limits = limits
        self.policy = policy
        self.waiting: WaitingJobs[Generation] = WaitingJobs(policy)
        self.unread: WaitingJobs[Reading[Any]] = WaitingJobs(policy)
        self.running: list[Running] = []
        self.readers: list[Reader] = []
        self.events: list[Event] = []
        self.n_steps = 0
        self.n_unread = 0  # requests none of whose readings has had a place
        self._n_requests = 0
        self._cache = cache
        self._states = states
        self._ended = ended
        self._reads_whole = reads_whole
        self._slots = list(range(limits.n_seqs))[::-1]
        self._reader_slots = self._slots if is_recurrent else list(self._slots)
        self._image_was_last = False  # the last step read an image alone
        self._refused: Job | None = None  # lacked blocks, and none were released since
        self._turn = 0  # of the sequence that was admitted last
        self._deadlines: list[tuple[float, int, Job]] = []
        self._numbers = count()

    @property
    def n_slots_free(self) -> int:
        return len(self._slots)

    @property
    def n_requests(self) -> int:
        """Return the number of generations and of requests of readings that have not ended. Thread-safe."""
        return self._n_requests

    @property
    def n_reading(self) -> int:
        """Return the number of requests of readings that have begun."""
        return self._n_requests - len(self.waiting) - len(self.running) - self.n_unread

    @property
    def active(self) -> list[Active]:
        """Return all sequences with a place."""
        return [*self.running, *self.readers]

    # --- arrival

    def add(self, generation: Generation) -> None:
        """Queue a generation."""
        self._n_requests += 1
        self._queue(generation, self.waiting)

    def add_reading(self, reading: Reading[Any]) -> None:
        """Queue a reading; the first of a request lets it wait."""
        request = reading.request
        if reading is request.readings[0]:
            self.n_unread += 1
            self._n_requests += 1
        reading.turn = request.turn = max(self._turn, request.turn) + 1
        self._queue(reading, self.unread)

    def _queue(self, job: J, jobs: WaitingJobs[J]) -> None:
        if job.turn is None:
            job.turn = self._turn + 1
        jobs.add(job)
        if job.deadline is not None:
            heappush(self._deadlines, (job.deadline, next(self._numbers), job))

    # --- selection of the next batch

    def choose(self, busy: Collection[Running] = (), most: int | None = None) -> Members:
        """Return the generations of the next batch and their numbers of tokens; blocks are held for them.

        ``busy``: sequences in submitted steps. ``most``: maximum number of sequences.
        """
        self.admit()
        members: Members = []
        free = [running for running in self.running if running not in busy and not running.tables.wanted]
        n_running = len(self.running)
        for running, n_shared in self._apart(self.policy.share(free, self.limits.n_batch)[:most]):
            # A step reads an image whole; its states within are not kept.
            n_new = n_shared if running.n_together else min(n_shared, running.next_mark - running.n_past)
            is_current = len(self.running) == n_running or running in self.running  # else preempted for one before
            if is_current and self._hold_blocks(running, n_new, [member for member, _ in members]):
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
        if self.running and not self._reads_whole(kind):
            room = min(room, self.policy.beside(len(self.running), room))
        shares = self.policy.share(free, room)
        for reader, n_shared in self._apart(shares):
            if reader not in self.readers:
                continue  # preempted for one before
            n_new = reader.pending if reader.whole else reader.fit(n_shared, n_rows)
            if n_new < 1 or (members and (n_new > n_shared or not n_rows)):
                continue
            if self._hold_blocks(reader, n_new, [member for member, _ in members]):
                members.append((reader, n_new))
                n_rows -= len(reader.rows(n_new, n_rows))
            if kind == "measure":
                break
        return members

    def n_rows(self, kind: str) -> int:
        """Return the output rows of a step of readings."""
        return self.limits.n_batch if kind == "hidden" else self.limits.n_outputs

    def _apart(self, members: Sequence[tuple[A, int]]) -> list[tuple[A, int]]:
        """Return either an image whose positions attend to each other, alone, or the other members, in turns."""
        images = [active for active, _ in members if active.n_together]
        if images and (len(images) == len(members) or not self._image_was_last):
            self._image_was_last = True
            return [(images[0], images[0].n_together)]
        self._image_was_last = False
        return [(active, active.before_media(n)) for active, n in members if active not in images]

    # --- admission

    def may_admit(self) -> bool:
        """True if other work than the running generations waits for its turn, or could be admitted."""
        if self.readers or self.unread or any(running.tables.wanted for running in self.running):
            return True
        first = self.waiting.first()
        if first is None:
            return False
        if self._slots and first is not self._refused:
            return True
        return self.policy.gives_way(self.running, first) is not None

    def admit(self) -> None:
        """Admit waiting sequences, preempting others if the policy decides so, and load their blocks from tiers.

        Blocks come first to the sequence that is next, whatever its kind: others wait until it has them.
        """
        self.waiting.wake()
        queues: list[WaitingJobs[Generation] | WaitingJobs[Reading[Any]]] = [self.waiting, self.unread]
        while heads := [(queue, job) for queue in queues if (job := queue.first()) is not None]:
            queue, job = min(heads, key=lambda head: self._order(head[1]))
            try:
                is_admitted = self._enter(job)
            except Exception as error:
                self.fail_job(job, error)
                continue
            if is_admitted:
                continue
            if loser := self._gives_way(job):
                loser.job.turn, loser.job.queued = self._turn + 1, time.perf_counter()
                self._put_back(loser)
            elif job is self._refused:
                break
            else:  # it waits for a slot of its kind
                queues.remove(queue)
        self._load()

    def _order(self, job: Job) -> tuple[bool, tuple[float, ...]]:
        is_patient = time.perf_counter() - job.waits_since < self.policy.patience
        return is_patient, self.policy.key(job)

    def _gives_way(self, job: Job) -> Active | None:
        """Return the sequence to preempt for a job; readings wait for no generation that holds a recurrent state."""
        if isinstance(job, Reading) and not self._reader_slots and self.running and not self.readers:
            return self.running[-1]
        slots = self._reader_slots if isinstance(job, Reading) else self._slots
        same: Sequence[Active] = self.readers if isinstance(job, Reading) else self.running
        return self.policy.gives_way(self.active if slots else same, job)

    def _enter(self, job: Generation | Reading[Any]) -> bool:
        """Allocate a place if a slot and blocks for a sequence's tokens are free; a single sequence always fits."""
        slots = self._slots if isinstance(job, Generation) else self._reader_slots
        if not slots or job is self._refused:
            return False
        tables, n_past = self._cache.begin(job.shareable, job.salt, loads=isinstance(job, Generation))
        demands = [(active.tables, len(active.job.tokens)) for active in self.active]
        demands.append((tables, len(job.tokens)))
        read = job.encoder_prompt
        n_read = len(read.tokens) if read else 0
        memory = EncoderMemory(self._cache.begin([])[0], n_read) if read else None
        if memory:
            demands.append(memory)
        is_alone = not (self.running or self.readers)
        if (not is_alone and not self._cache.fits(demands)) or (
            memory and not self._cache.extend(memory.tables, 0, n_read)
        ):
            self._cache.release(tables, job.shareable[:n_past])
            self._refused = job
            return False
        self._turn = max(self._turn, job.turn or 0)
        if isinstance(job, Generation):
            self._enter_generation(job, tables, memory, n_past)
        else:
            self._enter_reading(job, tables, memory, n_past)
        return True

    def _enter_generation(
        self, generation: Generation, tables: BlockTables, memory: EncoderMemory | None, n_past: int
    ) -> None:
        self.waiting.remove(generation)
        generation.admitted(n_past)
        running = Running(self._slots.pop(), tables, memory, generation=generation, n_past=n_past)
        self.running.append(running)
        self._states.restore(running)
        if running.reading and not tables.wanted:
            self.events.append(running.progress())

    def _enter_reading(
        self, reading: Reading[Any], tables: BlockTables, memory: EncoderMemory | None, n_past: int
    ) -> None:
        self.unread.remove(reading)
        if not reading.request.begun:
            self.n_unread -= 1
        self.events += reading.begin()
        whole = self._reads_whole(reading.kind)
        reader = Reader(self._reader_slots.pop(), tables, memory, reading=reading, n_past=n_past, whole=whole)
        self.readers.append(reader)
        self._states.restore(reader)

    def _load(self) -> None:
        """Load blocks of admitted sequences from tiers, for a limited time if others are running."""
        loading = [running for running in self.running if running.tables.wanted]
        ends = time.perf_counter() + (LOADING_SECONDS if len(self.running) > len(loading) else LOADING_ALONE_SECONDS)
        for running in loading:
            n_past: int | None = 0
            while n_past == 0:
                if time.perf_counter() >= ends:
                    return
                n_past = self._cache.load(running.tables, running.slot, LOADED_BLOCKS)
            if n_past is None:
                self.begin_again(running)
            else:
                running.n_past = n_past
                self._states.restore(running)
            running.generation.loaded(running.n_past)
            if running.reading:
                self.events.append(running.progress())

    def _hold_blocks(self, active: Active, n_new: int, members: Sequence[Active]) -> bool:
        """Hold blocks for a sequence's next tokens; if they run out, preempt one outside of this batch.

        A single sequence always fits, so the first of a batch never fails, and all sequences finish.
        """
        while not self._cache.extend(active.tables, active.n_past, n_new):
            others = [other for other in self.active if other is not active and other not in members]
            if not others:
                return False
            self._put_back(self.policy.yields_blocks(others))
        return True

    def _put_back(self, active: Active) -> None:
        """Preempt a sequence, which waits again; its evicted blocks are computed again later."""
        active.job.waits_since = time.perf_counter()
        if isinstance(active, Running):
            self._release(active)
            self.running.remove(active)
            self.waiting.add(active.generation)
        elif isinstance(active, Reader):
            self._give_back(active)
            self.readers.remove(active)
            self.unread.add(active.reading)

    # --- progress of sequences

    def computed(self, running: Running, n_new: int) -> None:
        """Record that a sequence's next tokens are in the cache."""
        running.n_past += n_new
        running.n_again = 0
        running.last_step = self.n_steps
        if running.began is None and running.pending == 0:
            running.began = time.perf_counter()
        self._cache.publish(running.tables, running.generation.tokens, running.n_past)

    def read(self, reader: Reader, n_new: int) -> None:
        """Record that a step has computed a reading's next tokens; a whole sequence is read until it is done."""
        reader.last_step = self.n_steps
        if not reader.whole or reader.reading.done:
            reader.n_past += n_new
        if reader.reading.shares:
            self._cache.publish(reader.tables, reader.reading.tokens, reader.n_past)

    def take(self, tokens: Sequence[tuple[Running, int]], least_forced: int = 1) -> None:
        """Append a token to each sequence, or end it; an error of a sampler fails only its sequence.

        ``least_forced``: see ``Generation.follow_mask``.
        """
        for running, token in tokens:
            running.undecided = False
            try:
                running.generation.accept(token)
            except Exception as error:
                self.fail([running], error)
        current = [running for running, _ in tokens if not running.generation.finish_reason]
        with suppress(Exception):  # then each mask is made alone, with its own error
            make_masks([running.generation.chain for running in current])
        for running in current:
            try:
                running.generation.follow_mask(least_forced)
            except Exception as error:
                self.fail([running], error)
            if len(running.generation.tokens) > running.generation.n_ctx and not running.generation.finish_reason:
                self._shift(running)

    def _shift(self, running: Running) -> None:
        """Shorten a sequence that fills the context, to be read again, or finish it."""
        generation = running.generation
        n_keep = min(generation.n_keep, len(generation.tokens) // 2)
        n_discard = (len(generation.tokens) - n_keep) // 2
        if not generation.request.context_shift or n_discard == 0:
            generation.finish_reason = "context_full"
            return
        del generation.tokens[n_keep : n_keep + n_discard]
        self.begin_again(running)

    def begin_again(self, running: Running) -> None:
        """Read a sequence's tokens again, from the end of its prefix on the device."""
        self._cache.release(running.tables)
        generation = running.generation
        running.tables, running.n_past = self._cache.begin(generation.tokens, generation.salt, loads=False)
        running.n_ahead = running.n_again = 0
        self._states.restore(running)
        self._refused = None

    # --- the end of sequences

    def fail(self, failed: Sequence[Active], error: Exception) -> None:
        """Fail sequences with an error, and with a reading its request; nothing that they computed is kept."""
        for active in list(failed):
            self.fail_job(active.job, error)

    def fail_job(self, job: Job, error: Exception) -> None:
        """Fail the request of a waiting or running job with an error."""
        if isinstance(job, Reading):
            if not job.request.ended:
                self._drop(job, job.fail(error))
        elif isinstance(job, Generation) and self._leave(job):
            self._end(job, job.fail(error))

    def fail_all(self, error: Exception) -> None:
        """Fail all requests with an error."""
        jobs: Iterator[Job] = chain(self.waiting, self.unread, [active.job for active in self.active])
        for job in list(jobs):
            self.fail_job(job, error)

    def stop(self, job: Job, reason: EngineFinishReason) -> None:
        """End the request of a job before its time; the blocks of a running generation stay cached."""
        if isinstance(job, Reading):
            if not job.request.ended:
                self._drop(job, job.stop(reason))
        elif isinstance(job, Generation):
            job.finish_reason = job.finish_reason or reason
            if job in self.waiting:
                self.finish_waiting(job)
            else:
                self.retire()

    def end_late(self) -> None:
        """End requests whose deadline has passed."""
        now = time.perf_counter()
        while self._deadlines and self._deadlines[0][0] <= now:
            job = heappop(self._deadlines)[2]
            if job in self.unread or job in self.waiting or any(active.job is job for active in self.active):
                self.stop(job, "timeout")

    def retire(self) -> None:
        """Release the resources of finished generations, and report their end."""
        for running in [running for running in self.running if running.generation.finish_reason]:
            self._release(running)
            self.running.remove(running)
            self._end(running.generation, running.generation.end())

    def finish_waiting(self, generation: Generation) -> None:
        """Report the end of a finished generation that has no place."""
        self.waiting.remove(generation)
        generation.admitted(0)  # records the end of waiting
        self._end(generation, generation.end())

    def _end(self, generation: Generation, events: Sequence[Event]) -> None:
        self._n_requests -= 1
        self._ended(generation)
        self.events += events

    def end_reading(self, reader: Reader) -> None:
        """Release the resources of a reading that is done, and report the end of its request."""
        if reader in self.readers:
            self.readers.remove(reader)
            reading = reader.reading
            self._give_back(reader, reading.tokens[: reader.n_past] if reading.shares else ())
            self.events += reading.end()
            self._n_requests -= reading.request.ended

    def _drop(self, reading: Reading[Any], events: Sequence[Event]) -> None:
        """Let all readings of a request leave."""
        request = reading.request
        self._n_requests -= 1
        if not request.begun:
            request.begun, self.n_unread = True, self.n_unread - 1
        for reader in [reader for reader in self.readers if reader.reading.request is request]:
            self.readers.remove(reader)
            self._give_back(reader)
        for other in request.readings:
            self.unread.remove(other)
        self.events += events

    def _leave(self, generation: Generation) -> bool:
        """Let a generation leave the queue or its place; return False if it had left."""
        if generation in self.waiting:
            self.waiting.remove(generation)
            return True
        for running in self.running:
            if running.generation is generation:
                self._give_back(running)
                self.running.remove(running)
                return True
        return False

    def _release(self, running: Running) -> None:
        """Release a sequence's resources; its full blocks stay cached for other sequences with the same prefix."""
        self._states.keep([running])
        self._give_back(running, running.generation.tokens[: running.n_past])

    def _give_back(self, place: Place, tokens: Sequence[int] = ()) -> None:
        self._cache.release(place.tables, tokens)
        if place.memory:
            self._cache.release(place.memory.tables)
        (self._reader_slots if isinstance(place, Reader) else self._slots).append(place.slot)
        self._refused = None

    # --- places of speech models, which read what they generate themselves

    def take_place(self) -> Place:
        """Return a place for a sequence outside of the queue; others are preempted if needed."""
        while not self._slots:
            if not self._preempt():
                raise RequestError("all slots are taken by speech; try again later")
        return Place(self._slots.pop(), self._cache.begin([])[0])

    def hold(self, place: Place, n_past: int, n_new: int) -> None:
        """Hold blocks for the next positions of such a sequence; others are preempted if necessary.

        Raises RequestError if blocks are missing although everything else was preempted.
        """
        while not self._cache.extend(place.tables, n_past, n_new):
            if not self._preempt():
                raise RequestError(f"{n_past + n_new} positions exceed the KV cache; increase n_ctx")

    def _preempt(self) -> bool:
        """Preempt the generation, or else the reading, that began last; return False if there is none."""
        if not self.active:
            return False
        self._put_back(self.running[-1] if self.running else self.readers[-1])
        return True

    def give_back(self, place: Place) -> None:
        self._give_back(place)
