"""Continuous batching: many sequences, one batch a step; prompts in chunks (prefill), then tokens (decode)."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import ENCODER
from pumice.backend import Ahead, Batch, KernelTime, Memory
from pumice.engine import logprobs
from pumice.engine.checkpoints import Checkpoints
from pumice.engine.encodings import Encodings, Place
from pumice.engine.flight import Flight, Flights
from pumice.engine.generation import Generation, Running
from pumice.engine.kv_cache import BlockTables, KVCache
from pumice.engine.lookahead import Lookahead
from pumice.engine.messages import Encode, Event, Failed, Snapshot
from pumice.engine.runner import Runner
from pumice.engine.schedule import FairPolicy, Members, Policy
from pumice.engine.states import RecurrentStates
from pumice.errors import RequestError
from pumice.lora import SCALES

Forward = Callable[[Sequence[int], int, Sequence[int]], NDArray[np.float32]]
"""A step of one sequence: its new tokens, how many came before, which of them give logits; those ``[n, n_vocab]``."""


class Engine:
    """Generates any number of sequences, up to ``limits.n_seqs`` of them in one batch; the others wait.

    One thread owns it. ``policy`` decides who computes. ``lookahead`` False: a step at a time, even where a program
    could take several by itself.
    """

    def __init__(self, runner: Runner, policy: Policy | None = None, lookahead: bool = True) -> None:
        self.limits = runner.limits
        self._runner = runner
        limits = runner.limits
        # A recurrent state holds a sequence's whole past, so blocks of its prefix alone are of no use.
        checkpoints = Checkpoints(range(limits.n_seqs, limits.n_slots)) if runner.keeps_states else None
        # What a decoder keeps depends on what its encoder read, too.
        shares = (not runner.recurrent or runner.keeps_states) and not runner.encodes
        self._cache = KVCache(limits, shares, checkpoints)
        self._states = RecurrentStates(runner, self._cache)
        self._ahead = runner.ahead if lookahead else None
        self.lookahead = Lookahead(self._ahead, self._cache) if self._ahead else None
        self._flights = Flights(self._ahead, self.lookahead, self._cache) if self._ahead and self.lookahead else None
        self._flight: Flight | None = None  # on its way
        self._slots = list(range(runner.limits.n_seqs))[::-1]
        self.policy = policy or FairPolicy()
        self._waiting: list[Generation] = []
        self._running: list[Running] = []
        self._refused: Generation | None = None  # there were no blocks for it, and none came back since
        self._events: list[Event] = []
        self._n_steps = 0
        self.encodings = Encodings(runner, self)

    @property
    def n_queued(self) -> int:
        """Sequences that wait, those aside for which there is a slot. Any thread may ask."""
        return len(self._waiting) - len(self._slots)

    @property
    def needs_whole_sequences(self) -> bool:
        """Whether a sequence must be all in one step."""
        return self._runner.needs_whole_sequences

    @property
    def busy(self) -> bool:
        """Whether ``step`` has something to do."""
        return bool(self._running or self._waiting or self.encodings.busy)

    def add(self, generation: Generation) -> None:
        """Queue a generation."""
        if not self._cache.shares_prefixes:
            generation.after = None
        mask = generation.chain.mask
        if generation.n_left <= 0:
            generation.finish_reason = "length"
        elif mask is not None and not mask.any():
            generation.finish_reason = "stop"
        self._waiting.append(generation)
        self._retire()

    def encode(self, command: Encode) -> None:
        """Queue texts to be encoded."""
        self.encodings.add(command)

    def cancel(self, ids: Container[int] | None = None) -> None:
        """End sequences now, at whatever token they are: these, or all."""
        if ids is not None:
            self.encodings.cancel(ids)
        for generation in self._generations():
            if ids is None or generation.id in ids:
                generation.finish_reason = generation.finish_reason or "cancelled"
        self._retire()

    def fail(self, error: Exception) -> None:
        """End all sequences by an error."""
        self.encodings.fail(error)
        self._events += [Failed(generation.id, error) for generation in self._generations()]
        self._waiting.clear()
        self._running.clear()
        self._flight = None

    def drain(self) -> list[Event]:
        """What happened since the last call."""
        events, self._events = self._events + self.encodings.drain(), []
        return events

    def snapshot(self) -> Snapshot:
        return Snapshot(
            n_waiting=len(self._waiting),
            n_running=len(self._running),
            n_slots=self.limits.n_seqs,
            n_slots_free=len(self._slots),
            n_blocks=self.limits.n_blocks,
            n_blocks_free=self._cache.free,
            n_steps=self._n_steps,
        )

    def step(self) -> None:
        """Compute one batch; sequences with nothing left to compute get their next token.

        Where that fails, the sequences of the batch fail, and the others go on. Texts to be encoded have a step of
        their own.
        """
        if self.encodings.busy:
            self._encode()
        self._end_late()
        members = self._flight.members if self._flight else self._choose()
        if not members:
            return
        started = time.perf_counter()
        try:
            with self._failing_lost():
                self._compute(members)
            self.policy.took(members, time.perf_counter() - started)
            for running, _ in members:
                self._events += running.generation.output()
        except Exception as error:
            self._fail([member for member in members if member[0] in self._running], error)
        finally:
            self._n_steps += 1
            self._retire()

    def _choose(self) -> Members:
        """Who is in the next batch, with how many tokens."""
        self._admit()
        members = self._schedule()
        return [member for member in members if member[0].undecided] or members

    def _compute(self, members: Members) -> None:
        if self._flight:
            self._land(self._flight)
            return
        for running, _ in members:
            if running.memory is not None and not running.is_read:
                self._read(running.memory, running.slot, running.generation.request.prompt)
                running.is_read = True
        n_steps = self.lookahead.steps(members) if self.lookahead else 0
        if n_steps and self._flights and self._flights.possible(members):
            self._land(self._flights.begin(members, n_steps))
            return
        if n_steps:
            self._generate(members, n_steps)
            return
        logits = self._runner.run(self._batch(members))
        for running, n_new in members:
            self._computed(running, n_new)
            if running.reading:
                self._events.append(running.progress())
        self._states.keep([running for running, _ in members if running.at_mark])
        whole = [running for running, _ in members if running.pending == 0]
        totals = logprobs.totals(logits, [running.generation.wants_raw for running in whole])
        for running, row, total in zip(whole, logits, totals, strict=True):
            token = running.generation.sample(row, total=total)
            assert token is not None
            self._take(running, token)

    def _generate(self, members: Members, n_steps: int) -> None:
        """Several steps at once. The program guesses the tokens; a sequence's chain ends its steps at a wrong guess.

        What was computed beyond lies in the cache where the right tokens will; recurrent states are taken back.
        """
        assert self._ahead is not None
        assert self.lookahead is not None
        generations = [running.generation for running, _ in members]
        n_right = [0] * len(members)
        guessed = list(enumerate(running for running, _ in members))  # whose guesses were right so far
        seconds, n_computed = 0.0, 0
        with self._states.taking_back([running for running, _ in members], n_steps):
            asked = self.lookahead.ask(generations, n_steps)
            parts = self._ahead.steps_ahead(self._batch(members), *asked)
            while guessed and n_computed < n_steps:
                started = time.perf_counter()
                ahead = next(parts)
                seconds += time.perf_counter() - started
                n_computed += len(ahead.picked)
                for row, running in guessed:
                    n_right[row] += self._take_guesses(running, ahead, row)
                guessed = [(row, running) for row, running in guessed if n_right[row] == n_computed]
        self.lookahead.took(len(members), n_computed, seconds)
        for (running, _), n in zip(members, n_right, strict=True):
            if not running.generation.finish_reason:
                running.generation.guessed(n, n_steps)

    def _land(self, flight: Flight) -> None:
        """Go on with the tokens of steps on their way, when the next ones are on theirs."""
        assert self._flights is not None
        self._flight = None
        n_steps = self._n_following(flight)
        following = self._flights.begin(flight.members, n_steps, flight) if n_steps else None
        off = following.lost if following else set()
        for running, tokens in self._flights.land(flight):
            if not running.generation.finish_reason and not self._take_picked(running, tokens, flight.n_steps):
                off.add(running)
        self._flight = following

    def _n_following(self, flight: Flight) -> int:
        """How many steps to begin behind a flight: none where others wait to be let in, or some are out of it."""
        assert self.lookahead is not None
        current = [running for running, _ in flight.members if not running.generation.finish_reason]
        if flight.lost or len(current) != len(flight.members) or len(current) != len(self._running):
            return 0
        ready = [generation for generation in self._waiting if generation.ready]
        if ready:
            first = self.policy.first(ready)
            if (self._slots and first is not self._refused) or self.policy.gives_way(self._running, first):
                return 0
        return self.lookahead.steps(flight.members, flight.n_steps)

    def _take_picked(self, running: Running, tokens: Sequence[int], n_steps: int) -> bool:
        """Go on with the tokens picked; whether all steps were of use, so that the next ones are."""
        running.undecided = len(tokens) < n_steps
        for n, token in enumerate(tokens, 1):
            self._computed(running, 1)
            self._take(running, token)
            if running.pending != 1 or running.generation.finish_reason:
                running.generation.chain.skip(n)
                return False
        running.generation.chain.skip(len(tokens))
        return len(tokens) == n_steps

    def _settle(self) -> None:
        """Let steps that are on their way come to their end."""
        flight, self._flight = self._flight, None
        if flight and self._flights:
            for running, tokens in self._flights.land(flight):
                if not running.generation.finish_reason:
                    self._take_picked(running, tokens, flight.n_steps)
            self._retire()

    def _take_guesses(self, running: Running, ahead: Ahead, row: int) -> int:
        """Go on with the tokens of steps until a guess was wrong; how many were right."""
        n_steps = len(ahead.picked)
        return next((step for step in range(n_steps) if not self._take_guess(running, ahead, step, row)), n_steps)

    def _take_guess(self, running: Running, ahead: Ahead, step: int, row: int) -> bool:
        """Go on with the token of a step. Whether it is the one that the next step was computed for."""
        assert self.lookahead is not None
        token = self.lookahead.token(running.generation, ahead, step, row)
        if token is None:
            running.undecided = True
            return False
        self._computed(running, 1)
        self._take(running, token)
        return running.pending == 1 and token == ahead.picked[step, row] and not running.generation.finish_reason

    def _computed(self, running: Running, n_new: int) -> None:
        running.n_past += n_new
        running.last_step = self._n_steps
        if running.began is None and running.pending == 0:
            running.began = time.perf_counter()
        self._cache.publish(running.tables, running.generation.tokens, running.n_past)

    def _take(self, running: Running, token: int) -> None:
        """Go on with a token, or end; a mask that cannot be made fails this sequence alone."""
        running.undecided = False
        try:
            running.generation.accept(token)
            running.generation.follow_mask()
        except RequestError as error:
            self._fail([(running, 0)], error)
            return
        if len(running.generation.tokens) > running.generation.n_ctx and not running.generation.finish_reason:
            self._shift(running)

    def _fail(self, members: Members, error: Exception) -> None:
        failed = [running for running, _ in members if running in self._running]
        for running in failed:
            self._cache.release(running.tables)
            self._slots.append(running.slot)
            running.generation.finish_reason = "cancelled"
            self._events.append(Failed(running.generation.id, error))
        self._running = [running for running in self._running if running not in failed]

    @contextmanager
    def _failing_lost(self) -> Iterator[None]:
        """Fail all sequences, and share nothing, where an error takes with it steps of any that were let go."""
        try:
            yield
        except Exception as error:
            if self._runner.lost:
                self._cache.forget()
                self._fail([(running, 0) for running in self._running], error)
            raise

    # --- outside the schedule

    def _encode(self) -> None:
        with suppress(Exception):  # encodings tell of their errors, and a step of those of steps on their way
            self._settle()
            with self._failing_lost():
                self.encodings.step()

    def profile(self) -> Generator[None, None, list[KernelTime]]:
        """Times of the kernels of the last step, by name, the longest first."""
        yield
        self._settle()
        with self._failing_lost():
            return self._runner.profile()

    @contextmanager
    def lone(self, adapter_scales: Sequence[float] = (), prompt: Sequence[int] = ()) -> Iterator[Forward]:
        """A place for a sequence outside the schedule; only one at a time is sure to get its blocks.

        ``prompt``: what an encoder reads.
        """
        self._settle()
        place = self.take_place(must=True)
        assert place is not None
        try:
            if prompt:
                place.memory = self._cache.begin([])[0], len(prompt)
                self.hold(Place(place.slot, place.memory[0]), 0, len(prompt), must=True)
                with self._failing_lost():
                    self._read(place.memory[0], place.slot, prompt)
            yield partial(self._forward, place, adapter_scales)
        finally:
            self.give_back(place)

    def _forward(
        self, place: Place, scales: Sequence[float], tokens: Sequence[int], n_past: int, outputs: Sequence[int]
    ) -> NDArray[np.float32]:
        """One step of a lone sequence; others wait where it needs their blocks."""
        self._settle()
        self.hold(place, n_past, len(tokens), must=True)
        batch = self.step_of([place], [tokens], [n_past])
        batch.output_ids = np.asarray(outputs, np.int32)
        if scales:
            batch.inputs = {SCALES: np.tile(np.array(scales, np.float32), (len(tokens), 1))}
        batch.memory = self._memory([place.memory] if place.memory else [])
        with self._failing_lost():
            return self._runner.run(batch)

    def take_place(self, must: bool) -> Place | None:
        """A place for a sequence outside the schedule; where there ``must`` be one, others wait."""
        if not self._slots:
            if not must or not self._running:
                return None
            self._put_back(self._running[-1])
        return Place(self._slots.pop(), self._cache.begin([])[0])

    def hold(self, place: Place, n_past: int, n_new: int, must: bool) -> bool:
        """Hold blocks for such a sequence's next positions; where they ``must`` be found, others wait."""
        while not self._cache.extend(place.tables, n_past, n_new):
            if not must or not self._running:
                return False
            self._put_back(self._running[-1])
        return True

    def give_back(self, place: Place) -> None:
        self._cache.release(place.tables)
        if place.memory:
            self._cache.release(place.memory[0])
        self._slots.append(place.slot)
        self._refused = None

    def step_of(self, places: Sequence[Place], tokens: Sequence[Sequence[int]], n_past: Sequence[int]) -> Batch:
        """The step of sequences outside the schedule; it has no output rows."""
        positions = [np.arange(n, n + len(new), dtype=np.int32) for n, new in zip(n_past, tokens, strict=True)]
        return Batch(
            tokens=np.concatenate([np.asarray(new, np.int32) for new in tokens]),
            positions=np.concatenate(positions),
            output_ids=np.zeros(0, np.int32),
            seq_starts=np.cumsum([0, *map(len, tokens)]).astype(np.int32),
            slots=np.array([place.slot for place in places], np.int32),
            block_tables=self._cache.batch_tables([place.tables for place in places]),
        )

    # --- who computes what

    def _admit(self) -> None:
        """Let in who may run; where there is no place, somebody may have to give way."""
        while ready := [generation for generation in self._waiting if generation.ready]:
            generation = self.policy.first(ready)
            if self._enter(generation):
                continue
            loser = self.policy.gives_way(self._running, generation)
            if loser is None:
                return
            self._put_back(loser)
            loser.generation.queued = time.perf_counter()

    def _enter(self, generation: Generation) -> bool:
        """A place in the cache, if there is a slot, and blocks for all that is to be read; alone, anyone fits."""
        if not self._slots:
            return False
        if generation is self._refused:
            return False
        tables, n_past = self._cache.begin(generation.tokens, generation.salt)
        wanted = [(running.tables, len(running.generation.tokens)) for running in self._running]
        wanted.append((tables, len(generation.tokens)))
        memory = self._cache.begin([])[0] if generation.is_encoded else None
        n_read = len(generation.request.prompt)
        if memory is not None:
            wanted.append((memory, n_read))
        if (self._running and not self._cache.fits(wanted)) or (memory and not self._cache.extend(memory, 0, n_read)):
            self._cache.release(tables, generation.tokens[:n_past])
            self._refused = generation
            return False
        self._waiting.remove(generation)
        generation.admitted(n_past)
        running = Running(generation, self._slots.pop(), tables, n_past, memory=memory)
        self._running.append(running)
        self._states.restore(running)
        return True

    def _schedule(self) -> Members:
        """Who is in the next batch with how many tokens; blocks are held for them."""
        members: Members = []
        for running, wanted in self.policy.share(self._running, self.limits.n_batch):
            n_new = min(wanted, running.next_mark - running.n_past)
            if running in self._running and self._hold_blocks(running, n_new, members):
                members.append((running, n_new))
        return members

    def _hold_blocks(self, running: Running, n_new: int, members: Members) -> bool:
        """Blocks for a sequence's next tokens; where they run out, one outside this batch is put back to wait.

        A lone sequence always fits, so the first of a batch never fails and all come to their end.
        """
        busy = [running, *(member for member, _ in members)]
        while not self._cache.extend(running.tables, running.n_past, n_new):
            others = [other for other in self._running if other not in busy]
            if not others:
                return False
            self._put_back(self.policy.yields_blocks(others))
        return True

    def _put_back(self, running: Running) -> None:
        """Let a sequence wait again; what the cache forgets of it is read again later."""
        self._release(running)
        self._running.remove(running)
        self._waiting.append(running.generation)

    def _end_late(self) -> None:
        now = time.perf_counter()
        for generation in self._generations():
            if generation.deadline is not None and now >= generation.deadline:
                generation.finish_reason = "timeout"
        self._retire()

    def _shift(self, running: Running) -> None:
        """Make a sequence that fills the context shorter, to be read again, or finish it."""
        generation = running.generation
        n_keep = min(generation.n_keep, len(generation.tokens) // 2)
        n_discard = (len(generation.tokens) - n_keep) // 2
        if not generation.request.context_shift or n_discard == 0:
            generation.finish_reason = "context_full"
            return
        del generation.tokens[n_keep : n_keep + n_discard]
        self._cache.release(running.tables)
        running.tables, running.n_past = self._cache.begin(generation.tokens, generation.salt)
        self._states.restore(running)
        self._refused = None

    def _retire(self) -> None:
        """Take back what finished sequences hold, and tell of their end."""
        for running in [running for running in self._running if running.generation.finish_reason]:
            self._release(running)
            self._running.remove(running)
            self._events += running.generation.end()
        for generation in [generation for generation in self._waiting if generation.finish_reason]:
            self._waiting.remove(generation)
            self._events += generation.end()

    def _release(self, running: Running) -> None:
        self._states.keep([running])
        self._cache.release(running.tables, running.generation.tokens[: running.n_past])
        if running.memory is not None:
            self._cache.release(running.memory)
        self._refused = None
        self._slots.append(running.slot)

    def _generations(self) -> list[Generation]:
        return [*self._waiting, *(running.generation for running in self._running)]

    def _batch(self, members: Members) -> Batch:
        starts = np.cumsum([0, *(n_new for _, n_new in members)]).astype(np.int32)
        outputs = [starts[i + 1] - 1 for i, (running, n_new) in enumerate(members) if running.pending == n_new]
        tokens = [running.generation.tokens[running.n_past : running.n_past + n_new] for running, n_new in members]
        positions = [np.arange(r.n_past, r.n_past + n_new, dtype=np.int32) for r, n_new in members]
        scales = np.array([running.generation.adapter_scales for running, _ in members], np.float32)
        rows = [n_new for _, n_new in members]
        return Batch(
            tokens=np.concatenate(tokens).astype(np.int32),
            positions=np.concatenate(positions),
            output_ids=np.array(outputs, np.int32),
            seq_starts=starts,
            slots=np.array([running.slot for running, _ in members], np.int32),
            block_tables=self._cache.batch_tables([running.tables for running, _ in members]),
            inputs={SCALES: np.repeat(scales, rows, axis=0)} if scales.size else {},
            memory=self._memory([(r.memory, len(r.generation.request.prompt)) for r, _ in members if r.memory]),
        )

    def _memory(self, read: Sequence[tuple[BlockTables, int]]) -> Memory | None:
        """What the encoder kept of each sequence's prompt of so many tokens."""
        if not read:
            return None
        tables = self._cache.batch_tables([tables for tables, _ in read])[0]
        return Memory(np.array([n for _, n in read], np.int32), tables)

    def _read(self, memory: BlockTables, slot: int, prompt: Sequence[int]) -> None:
        """Have the encoder read a prompt."""
        self._runner.outputs(self.step_of([Place(slot, memory)], [prompt], [0]), ENCODER)
