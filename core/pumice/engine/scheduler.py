"""The scheduler: queues, admission, preemption, context shifts, and the resources of running sequences."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from pumice.backend.step import Limits
from pumice.engine.batches import EncoderMemory, Place
from pumice.engine.generation import Generation, Running
from pumice.engine.kv_cache import KVCache
from pumice.engine.messages import Event, Failed
from pumice.engine.schedule import Members, SchedulingPolicy
from pumice.engine.states import RecurrentStates
from pumice.errors import RequestError
from pumice.sampler import make_masks

LOADED_BLOCKS = 16
"""Blocks that are loaded from tiers at a time."""
LOADING_SECONDS = 0.02
"""Seconds for which a step may load from tiers while other sequences run."""
LOADING_ALONE_SECONDS = 0.2
"""Seconds for which a step may load from tiers while no sequence runs; commands wait until then."""


class Scheduler:
    """Allocates slots and cache blocks to sequences; ``policy`` decides between them.

    ``events``: beginnings and ends of sequences, until they are drained. ``ended`` is called with ended sequences.
    """

    def __init__(
        self,
        limits: Limits,
        policy: SchedulingPolicy,
        cache: KVCache,
        states: RecurrentStates,
        ended: Callable[[Generation], None],
    ) -> None:
        self.limits = limits
        self.policy = policy
        self.waiting: list[Generation] = []
        self.running: list[Running] = []
        self.events: list[Event] = []
        self.n_steps = 0
        self.preempt_others: Callable[[Place | None], bool] = lambda place: False
        self._cache = cache
        self._states = states
        self._ended = ended
        self._slots = list(range(limits.n_seqs))[::-1]
        self._image_was_last = False  # the last step read an image alone
        self._refused: Generation | None = None  # lacked blocks, and none were released since

    @property
    def n_slots_free(self) -> int:
        return len(self._slots)

    @property
    def generations(self) -> list[Generation]:
        return [*self.waiting, *(running.generation for running in self.running)]

    # --- selection of the next batch

    def choose(self, busy: Collection[Running] = (), most: int | None = None) -> Members:
        """Return the members of the next batch and their numbers of tokens; blocks are held for them.

        ``busy``: sequences in submitted steps. ``most``: maximum number of sequences.
        """
        self._admit()
        self._load()
        members: Members = []
        free = [running for running in self.running if running not in busy and not running.tables.wanted]
        n_running = len(self.running)
        for running, n_shared in self._apart(self.policy.share(free, self.limits.n_batch)[:most]):
            # A step reads an image whole; its states within are not kept.
            n_new = n_shared if running.n_together else min(n_shared, running.next_mark - running.n_past)
            is_current = len(self.running) == n_running or running in self.running  # else preempted for one before
            if is_current and self._hold_blocks(running, n_new, members):
                members.append((running, n_new))
        return [member for member in members if member[0].undecided] or members

    def _apart(self, members: Members) -> Members:
        """Return either an image whose positions attend to each other, alone, or the other members, in turns."""
        images = [running for running, _ in members if running.n_together]
        if images and (len(images) == len(members) or not self._image_was_last):
            self._image_was_last = True
            return [(images[0], images[0].n_together)]
        self._image_was_last = False
        return [(running, running.before_media(n)) for running, n in members if running not in images]

    def may_admit(self) -> bool:
        """True if a waiting sequence could be admitted, or one that was has to be loaded from tiers."""
        if any(running.tables.wanted for running in self.running):
            return True
        ready = [generation for generation in self.waiting if generation.ready]
        if not ready:
            return False
        first = self.policy.first(ready)
        if self._slots and first is not self._refused:
            return True
        return self.policy.gives_way(self.running, first) is not None

    def _admit(self) -> None:
        """Admit waiting sequences, preempting others if the policy decides so."""
        while ready := [generation for generation in self.waiting if generation.ready]:
            generation = self.policy.first(ready)
            if self._enter(generation):
                continue
            loser = self.policy.gives_way(self.running, generation)
            if loser is None:
                return
            self._put_back(loser)
            loser.generation.queued = time.perf_counter()

    def _enter(self, generation: Generation) -> bool:
        """Allocate a place if a slot and blocks for a sequence's tokens are free; a single sequence always fits."""
        if not self._slots or generation is self._refused:
            return False
        tables, n_past = self._cache.begin(generation.tokens, generation.salt)
        demands = [(running.tables, len(running.generation.tokens)) for running in self.running]
        demands.append((tables, len(generation.tokens)))
        read = generation.encoder_prompt
        n_read = len(read.tokens) if read else 0
        memory = EncoderMemory(self._cache.begin([])[0], n_read) if read else None
        if memory:
            demands.append(memory)
        if (self.running and not self._cache.fits(demands)) or (
            memory and not self._cache.extend(memory.tables, 0, n_read)
        ):
            self._cache.release(tables, generation.tokens[:n_past])
            self._refused = generation
            return False
        self.waiting.remove(generation)
        generation.admitted(n_past)
        running = Running(self._slots.pop(), tables, memory, generation=generation, n_past=n_past)
        self.running.append(running)
        self._states.restore(running)
        if running.reading and not tables.wanted:
            self.events.append(running.progress())
        return True

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

    def _hold_blocks(self, running: Running, n_new: int, members: Members) -> bool:
        """Hold blocks for a sequence's next tokens; if they run out, preempt one outside of this batch.

        A single sequence always fits, so the first of a batch never fails, and all sequences finish.
        """
        while not self._cache.extend(running.tables, running.n_past, n_new):
            busy = [running, *(member for member, _ in members)]
            others = [other for other in self.running if other not in busy]
            if not others:
                return False
            self._put_back(self.policy.yields_blocks(others))
        return True

    def _put_back(self, running: Running) -> None:
        """Preempt a sequence; its evicted blocks are computed again later."""
        self._release(running)
        self.running.remove(running)
        running.generation.waits_since = time.perf_counter()
        self.waiting.append(running.generation)

    # --- progress of sequences

    def computed(self, running: Running, n_new: int) -> None:
        """Record that a sequence's next tokens are in the cache."""
        running.n_past += n_new
        running.n_again = 0
        running.last_step = self.n_steps
        if running.began is None and running.pending == 0:
            running.began = time.perf_counter()
        self._cache.publish(running.tables, running.generation.tokens, running.n_past)

    def take(self, tokens: Sequence[tuple[Running, int]], least_forced: int = 1) -> None:
        """Append a token to each sequence, or end it; an error of a mask fails only its sequence.

        ``least_forced``: see ``Generation.follow_mask``.
        """
        for running, token in tokens:
            running.undecided = False
            try:
                running.generation.accept(token)
            except RequestError as error:
                self.fail([running], error)
        current = [running for running, _ in tokens if not running.generation.finish_reason]
        make_masks([running.generation.chain for running in current])
        for running in current:
            try:
                running.generation.follow_mask(least_forced)
            except RequestError as error:
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

    def fail(self, failed: Sequence[Running], error: Exception) -> None:
        """Fail sequences with an error; nothing that they computed is kept."""
        for running in [running for running in failed if running in self.running]:
            self._give_back(running)
            self.running.remove(running)
            running.generation.finish_reason = "cancelled"
            self._ended(running.generation)
            self.events.append(Failed(running.generation.id, error))

    def fail_all(self, error: Exception) -> None:
        """Fail all sequences with an error after which the engine stops."""
        for generation in self.generations:
            self._ended(generation)
            self.events.append(Failed(generation.id, error))
        self.waiting.clear()
        self.running.clear()

    def end_late(self) -> None:
        """End sequences whose deadline has passed."""
        now = time.perf_counter()
        for generation in self.generations:
            if generation.deadline is not None and now >= generation.deadline:
                generation.finish_reason = "timeout"
        self.retire()

    def retire(self) -> None:
        """Release the resources of finished sequences, and report their end."""
        for running in [running for running in self.running if running.generation.finish_reason]:
            self._release(running)
            self.running.remove(running)
            self._ended(running.generation)
            self.events += running.generation.end()
        for generation in [generation for generation in self.waiting if generation.finish_reason]:
            self.waiting.remove(generation)
            generation.admitted(0)  # records the end of waiting
            self._ended(generation)
            self.events += generation.end()

    def _release(self, running: Running) -> None:
        """Release a sequence's resources; its full blocks stay cached for other sequences with the same prefix."""
        self._states.keep([running])
        self._give_back(running, running.generation.tokens[: running.n_past])

    def _give_back(self, place: Place, tokens: Sequence[int] = ()) -> None:
        self._cache.release(place.tables, tokens)
        if place.memory:
            self._cache.release(place.memory.tables)
        self._slots.append(place.slot)
        self._refused = None

    # --- places for other work than generations

    def take_place(self, must: bool) -> Place | None:
        """Return a free slot for work other than generation, or None; with ``must``, preempt others if needed."""
        while not self._slots:
            if not must or not self._preempt():
                return None
        return Place(self._slots.pop(), self._cache.begin([])[0])

    def hold(self, place: Place, n_past: int, n_new: int, must: bool) -> bool:
        """Reserve blocks for the next positions of a slot; with ``must``, preempt others if necessary.

        Raises RequestError if blocks are missing although everything else was preempted.
        """
        while not self._cache.extend(place.tables, n_past, n_new):
            if not must:
                return False
            if not self._preempt(place):
                raise RequestError(f"{n_past + n_new} positions exceed the KV cache; increase n_ctx")
        return True

    def _preempt(self, place: Place | None = None) -> bool:
        """Preempt a generation, or else other work than that of ``place``; return False if there is none."""
        if self.running:
            self._put_back(self.running[-1])
            return True
        return self.preempt_others(place)

    def give_back(self, place: Place) -> None:
        self._give_back(place)
