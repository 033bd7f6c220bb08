"""Places of sequences: slots with their recurrent states, and cache blocks; who gets them, and who gives them up."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pumice.backend.step import Limits
from pumice.engine.cache.blocks import BlockTables
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.loop.policy import ClientTurns, SchedulingPolicy, WaitingJobs
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.batches import EncoderMemory, Place
from pumice.engine.requests.generation import Generation
from pumice.engine.requests.job import Job
from pumice.engine.requests.reading import Reading

J = TypeVar("J", bound=Job)

logger = logging.getLogger("pumice")

LOADED_BLOCKS = 16
"""Blocks that are loaded from tiers at a time, which is all that a step loads beside other sequences."""
LOADS_ALONE = 8
"""Times that a step loads blocks if no other sequence has a place; commands wait until then."""


@dataclass(eq=False)
class Lane(Generic[J]):
    """Jobs that share slots: those that wait, and those with a place."""

    waiting: WaitingJobs[J]
    active: list[J]
    slots: list[int]


class Places:
    """Allocates slots and cache blocks to sequences; ``policy`` decides between them.

    Generations and readings have slots of their own, so that neither waits for the end of the other, unless slots hold
    recurrent states. All share the blocks.
    """

    def __init__(
        self, limits: Limits, policy: SchedulingPolicy, cache: KVCache, states: RecurrentStates, is_recurrent: bool
    ) -> None:
        slots = list(range(limits.n_seqs))[::-1]
        other_slots = slots if is_recurrent else list(slots)
        self.policy = policy
        self.generations: Lane[Generation] = Lane(WaitingJobs(policy), [], slots)
        self.readings: Lane[Reading[Any]] = Lane(WaitingJobs(policy), [], other_slots)
        self._cache = cache
        self._states = states
        self._turns = ClientTurns()
        self._demand: Counter[int] | None = None  # blocks that all with a place will take; None if it has changed
        self._refused: Job | None = None  # lacked blocks, and none were released since
        self._told_of: Job | None = None  # the last one of which the log says that it waits
        self.n_lacked = 0  # generations that have waited for blocks
        self.n_steps = 0  # computed so far

    @property
    def active(self) -> list[Job]:
        """Return all sequences with a place."""
        return [*self.generations.active, *self.readings.active]

    def lane(self, job: Job) -> Lane[Any]:
        return self.readings if isinstance(job, Reading) else self.generations

    # --- waiting

    def queue(self, job: Job) -> None:
        """Queue a job behind the others of its client."""
        job.turn = self._turns.next(job.terms.client, job.request_name)
        job.waits_since = self.n_steps
        self.lane(job).waiting.add(job)

    def next(self, lanes: Sequence[Lane[Any]]) -> Job | None:
        """Return the waiting job of these lanes that gets the next place."""
        heads = [job for lane in lanes if (job := lane.waiting.first(self.n_steps)) is not None]
        return min(heads, key=self._order, default=None)

    def _order(self, job: Job) -> tuple[bool, tuple[float, ...]]:
        is_patient = self.n_steps - job.waits_since < self.policy.patience
        return is_patient, self.policy.key(job)

    def may_enter(self, job: Job) -> bool:
        """True unless all slots are taken, or blocks lacked, and none were released since."""
        return bool(self.lane(job).slots) and job is not self._refused

    def lacks_blocks(self, job: Job) -> bool:
        """True if blocks were lacking for a job."""
        return job is self._refused

    def _tell_of_waiting(self, job: Job) -> None:
        """Count a generation that lacks blocks, and say so: the first time as a warning."""
        if job is self._told_of or not isinstance(job, Generation):
            return
        self._told_of = job
        self.n_lacked += 1
        level = logging.WARNING if self.n_lacked == 1 else logging.INFO
        text = "a request of %d tokens waits for others: the key/value cache has no room (%d waited; n_ctx sets it)"
        logger.log(level, text, len(job.tokens), self.n_lacked)

    def enter(self, job: Job) -> bool:
        """Allocate a place if a slot and blocks for all tokens of a job are free; a single sequence always fits."""
        if not self.may_enter(job):
            return False
        lane, read = self.lane(job), job.encoder_prompt
        tables, n_past = self._cache.begin(job.shareable, job.salt, loads=isinstance(job, Generation))
        memory = EncoderMemory(self._cache.begin([])[0], len(read.tokens)) if read else None
        demand = self._cache.demand(tables, len(job.tokens))
        fits = self._fits_beside_others(demand + self._cache.demand(*memory) if memory else demand)
        if not fits or (memory and not self._cache.extend(memory.tables, 0, memory.n_tokens)):
            self._cache.release(tables, job.shareable[:n_past])
            self._refused = job
            self._tell_of_waiting(job)
            return False
        lane.waiting.remove(job)
        self._turns.admitted(job.turn)
        job.enter(Place(lane.slots.pop(), tables, memory), n_past, self.n_steps)
        lane.active.append(job)
        if self._demand is not None:
            self._demand += demand
        self._states.restore(job)
        return True

    def _fits_beside_others(self, demand: Counter[int]) -> bool:
        if not self.generations.active and not self.readings.active:
            return True
        if self._demand is None:
            self._demand = Counter()
            for item in self.active:
                self._demand += self._cache.demand(item.tables, len(item.tokens))
        return self._cache.fits(self._demand + demand)

    def forget_demand(self) -> None:
        """Note that sequences with a place have other tokens or blocks than at the last admission."""
        self._demand = None

    # --- blocks of sequences with a place

    def hold(self, active: Job, n_new: int, members: Sequence[tuple[Job, int]]) -> bool:
        """Hold blocks for a sequence's next tokens; if they run out, preempt one outside of this batch.

        A single sequence always fits, so the first of a batch never fails, and all sequences finish.
        """
        while not self._cache.extend(active.tables, active.n_past, n_new):
            batch = {active, *(member for member, _ in members)}
            others = [other for other in self.active if other not in batch]
            if not others:
                return False
            self.put_back(self.policy.yields_blocks(others, self.n_steps))
        return True

    def load(self) -> list[Generation]:
        """Load blocks from tiers; return the sequences that have all of theirs now."""
        tiers = self._cache.tiers
        if tiers is None:
            return []
        wanting = [running for running in self.generations.active if running.tables.wanted]
        n_loads = LOADS_ALONE if len(wanting) == len(self.active) else 1
        loaded: list[Generation] = []
        for running in wanting:
            n_past: int | None = 0
            while n_past == 0:
                if not n_loads:
                    return loaded
                n_past = tiers.load(running.tables, running.slot, LOADED_BLOCKS)
                n_loads -= 1
            if n_past is None:
                self.begin_again(running)
            else:
                running.n_past = n_past
                self._states.restore(running)
            loaded.append(running)
        return loaded

    def begin_again(self, running: Generation) -> None:
        """Read a sequence's tokens again, from the end of its prefix on the device."""
        self._cache.release(running.tables)
        running.tables, running.n_past = self._cache.begin(running.tokens, running.salt, loads=False)
        running.n_ahead = running.n_coming = running.n_again = 0
        self._states.restore(running)
        self._refused = None

    # --- the end of a place

    def gives_way(self, job: Job) -> Job | None:
        """Return the sequence to preempt for a job, or None.

        A reading that lacks a recurrent state preempts a generation at once, unless all have a higher priority, which
        would be next again.
        """
        lane = self.lane(job)
        if isinstance(job, Reading) and not lane.slots and not lane.active:
            generations = self.generations.active
            below = [item for item in generations if item.terms.priority <= job.terms.priority]
            return below[-1] if below else self.policy.gives_way(generations, job, self.n_steps)
        return self.policy.gives_way(self.active if lane.slots else lane.active, job, self.n_steps)

    def put_back(self, job: Job, gives_way: bool = False) -> None:
        """Preempt a sequence, which waits again, behind the others of its client if it ``gives_way`` to another.

        Evicted blocks are computed again later.
        """
        self.release(job)
        if gives_way:
            self.queue(job)
        else:
            job.waits_since = self.n_steps
            self.lane(job).waiting.add(job)

    def release(self, job: Job, keeps: bool = True) -> None:
        """Take a sequence's place; ``keeps``: what it has computed stays cached for others with the same prefix."""
        if keeps and isinstance(job, Generation):
            self._states.keep([job])
        lane = self.lane(job)
        lane.active.remove(job)
        lane.slots.append(job.slot)
        self._cache.release(job.tables, job.known[: job.n_past] if keeps else ())
        if job.memory:
            self._cache.release(job.memory.tables)
        job.leave()
        self._refused = self._demand = None


# --- recurrent states


@dataclass(frozen=True)
class _Copy:
    """A copy of a sequence's states after ``n_past`` tokens in another slot, before ``n_computed`` others."""

    running: Generation
    n_computed: int
    n_past: int
    tables: BlockTables
    slot: int

    @property
    def n_right(self) -> int:
        """Return the number of confirmed tokens computed since the copy."""
        return self.running.n_past - self.n_past

    @property
    def begun_anew(self) -> bool:
        return self.running.tables is not self.tables


class RecurrentStates:
    """Copies states between slots of sequences and of checkpoints; does nothing without recurrent states."""

    def __init__(self, runner: Runner, cache: KVCache) -> None:
        self._runner = runner
        self._cache = cache

    def keep(self, sequences: Sequence[Generation]) -> None:
        """Keep the states of sequences for others."""
        sources = {}
        for running in sequences:
            if running.n_ahead:
                continue  # the state has advanced beyond it
            slot = self._cache.keep(running.tables, running.tokens, running.n_past - running.n_behind)
            if slot is not None:
                sources[slot] = running.slot
        self._copy([(source, slot) for slot, source in sources.items()])

    def restore(self, running: Job) -> None:
        """Restore the states after a prefix from which a sequence continues."""
        if running.tables.checkpoint is not None:
            self._copy([(running.tables.checkpoint, running.slot)])

    @contextmanager
    def taking_back(self, sequences: Sequence[tuple[Generation, int]]) -> Iterator[None]:
        """Copy states before guessed tokens; after a wrong guess, restore them and compute the right tokens again."""
        checkpoints = self._cache.checkpoints
        copies = (
            [_Copy(item, n, item.n_past, item.tables, checkpoints.take()) for item, n in sequences]
            if checkpoints
            else []
        )
        try:
            self._copy([(copy.running.slot, copy.slot) for copy in copies])
            yield
            wrong = [copy for copy in copies if copy.n_right != copy.n_computed and not copy.begun_anew]
            self._copy([(copy.slot, copy.running.slot) for copy in wrong])
            for copy in wrong:
                if copy.running.finish_reason:
                    copy.running.n_behind = copy.n_right
                else:
                    copy.running.n_past, copy.running.n_again = copy.n_past, copy.n_right
        finally:
            if checkpoints is not None:
                checkpoints.give_back(copy.slot for copy in copies)

    def _copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        if pairs:
            cache = self._runner.cache
            cache.call(cache.program.copy_slots, pairs)
