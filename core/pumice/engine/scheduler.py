"""The scheduler: who waits, who runs, and what the running hold; admission, preemption, context shift."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from pumice.engine.batches import Place, Read
from pumice.engine.generation import Generation, Running
from pumice.engine.kv_cache import KVCache
from pumice.engine.messages import Event, Failed
from pumice.engine.schedule import Members, Policy
from pumice.engine.states import RecurrentStates
from pumice.errors import RequestError
from pumice.sampler import make_masks
from pumice.step import Limits


class Scheduler:
    """Gives slots and blocks of the cache to sequences, and takes them back; ``policy`` decides between them.

    ``events``: the beginnings and ends of sequences, until somebody takes them.
    """

    def __init__(self, limits: Limits, policy: Policy, cache: KVCache, states: RecurrentStates) -> None:
        self.limits = limits
        self.policy = policy
        self.waiting: list[Generation] = []
        self.running: list[Running] = []
        self.events: list[Event] = []
        self.n_steps = 0
        self._cache = cache
        self._states = states
        self._slots = list(range(limits.n_seqs))[::-1]
        self._refused: Generation | None = None  # there were no blocks for it, and none came back since

    @property
    def n_slots_free(self) -> int:
        return len(self._slots)

    @property
    def generations(self) -> list[Generation]:
        return [*self.waiting, *(running.generation for running in self.running)]

    # --- who computes

    def choose(self, busy: Collection[Running] = (), most: int | None = None) -> Members:
        """Who is in the next batch, with how many tokens; blocks are held for them.

        ``busy``: who is on the way in another one. ``most``: sequences.
        """
        self._admit()
        members: Members = []
        free = [running for running in self.running if running not in busy] if busy else self.running
        for running, wanted in self.policy.share(free, self.limits.n_batch)[:most]:
            n_new = min(wanted, running.next_mark - running.n_past)
            if running in self.running and self._hold_blocks(running, n_new, members):
                members.append((running, n_new))
        return [member for member in members if member[0].undecided] or members

    def may_admit(self) -> bool:
        """Whether somebody who waits could come in."""
        ready = [generation for generation in self.waiting if generation.ready]
        if not ready:
            return False
        first = self.policy.first(ready)
        if self._slots and first is not self._refused:
            return True
        return self.policy.gives_way(self.running, first) is not None

    def _admit(self) -> None:
        """Let in who may run; where there is no place, somebody may have to give way."""
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
        """A place in the cache, if there is a slot, and blocks for all that is to be read; alone, anyone fits."""
        if not self._slots or generation is self._refused:
            return False
        tables, n_past = self._cache.begin(generation.tokens, generation.salt)
        wanted = [(running.tables, len(running.generation.tokens)) for running in self.running]
        wanted.append((tables, len(generation.tokens)))
        n_read = len(generation.request.prompt)
        memory = Read(self._cache.begin([])[0], n_read) if generation.is_encoded else None
        if memory:
            wanted.append(memory)
        if (self.running and not self._cache.fits(wanted)) or (
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
        if running.reading:
            self.events.append(running.progress())
        return True

    def _hold_blocks(self, running: Running, n_new: int, members: Members) -> bool:
        """Blocks for a sequence's next tokens; where they run out, one outside this batch is put back to wait.

        A lone sequence always fits, so the first of a batch never fails and all come to their end.
        """
        busy = [running, *(member for member, _ in members)]
        while not self._cache.extend(running.tables, running.n_past, n_new):
            others = [other for other in self.running if other not in busy]
            if not others:
                return False
            self._put_back(self.policy.yields_blocks(others))
        return True

    def _put_back(self, running: Running) -> None:
        """Let a sequence wait again; what the cache forgets of it is read again later."""
        self._release(running)
        self.running.remove(running)
        running.generation.waits_since = time.perf_counter()
        self.waiting.append(running.generation)

    # --- going on

    def computed(self, running: Running, n_new: int) -> None:
        """Note that a sequence's next tokens are in the cache."""
        running.n_past += n_new
        running.last_step = self.n_steps
        if running.began is None and running.pending == 0:
            running.began = time.perf_counter()
        self._cache.publish(running.tables, running.generation.tokens, running.n_past)

    def take(self, tokens: Sequence[tuple[Running, int]], least_forced: int = 1) -> None:
        """Go on with a token of each, or end; a mask that cannot be made fails its sequence alone.

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
        """Make a sequence that fills the context shorter, to be read again, or finish it."""
        generation = running.generation
        n_keep = min(generation.n_keep, len(generation.tokens) // 2)
        n_discard = (len(generation.tokens) - n_keep) // 2
        if not generation.request.context_shift or n_discard == 0:
            generation.finish_reason = "context_full"
            return
        del generation.tokens[n_keep : n_keep + n_discard]
        self.begin_again(running)

    def begin_again(self, running: Running) -> None:
        """Read a sequence's tokens again, from where the cache knows them."""
        self._cache.release(running.tables)
        running.tables, running.n_past = self._cache.begin(running.generation.tokens, running.generation.salt)
        running.n_ahead = 0
        self._states.restore(running)
        self._refused = None

    # --- the end of sequences

    def fail(self, failed: Sequence[Running], error: Exception) -> None:
        """End sequences by an error; nothing of what they computed is kept."""
        for running in [running for running in failed if running in self.running]:
            self._give_back(running)
            self.running.remove(running)
            running.generation.finish_reason = "cancelled"
            self.events.append(Failed(running.generation.id, error))

    def fail_all(self, error: Exception) -> None:
        """End all sequences by an error after which nothing computes any more."""
        self.events += [Failed(generation.id, error) for generation in self.generations]
        self.waiting.clear()
        self.running.clear()

    def end_late(self) -> None:
        """End those whose time is over."""
        now = time.perf_counter()
        for generation in self.generations:
            if generation.deadline is not None and now >= generation.deadline:
                generation.finish_reason = "timeout"
        self.retire()

    def retire(self) -> None:
        """Take back what finished sequences hold, and tell of their end."""
        for running in [running for running in self.running if running.generation.finish_reason]:
            self._release(running)
            self.running.remove(running)
            self.events += running.generation.end()
        for generation in [generation for generation in self.waiting if generation.finish_reason]:
            self.waiting.remove(generation)
            generation.admitted(0)  # to nothing, but it waits no longer
            self.events += generation.end()

    def _release(self, running: Running) -> None:
        """Take back what a sequence holds; what it computed is kept for others that begin alike."""
        self._states.keep([running])
        self._give_back(running, running.generation.tokens[: running.n_past])

    def _give_back(self, place: Place, tokens: Sequence[int] = ()) -> None:
        self._cache.release(place.tables, tokens)
        if place.memory:
            self._cache.release(place.memory.tables)
        self._slots.append(place.slot)
        self._refused = None

    # --- places for others than generations

    def take_place(self, must: bool) -> Place | None:
        """A place for a sequence of somebody else; where there ``must`` be one, generations wait."""
        if not self._slots:
            if not must or not self.running:
                return None
            self._put_back(self.running[-1])
        return Place(self._slots.pop(), self._cache.begin([])[0])

    def hold(self, place: Place, n_past: int, n_new: int, must: bool) -> bool:
        """Hold blocks for such a sequence's next positions; where they ``must`` be found, generations wait."""
        while not self._cache.extend(place.tables, n_past, n_new):
            if not must or not self.running:
                return False
            self._put_back(self.running[-1])
        return True

    def give_back(self, place: Place) -> None:
        self._give_back(place)
