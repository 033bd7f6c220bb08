"""Continuous batching: many sequences, one batch a step; prompts in chunks (prefill), then tokens (decode)."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from pumice.architecture import ENCODER, Masks
from pumice.backend import KernelTime
from pumice.engine.batches import Part, Place, batch_of
from pumice.engine.checkpoints import Checkpoints
from pumice.engine.diffusion import Denoising
from pumice.engine.encodings import Encodings
from pumice.engine.flights import Flight, Flights
from pumice.engine.generation import Generation
from pumice.engine.kv_cache import KVCache
from pumice.engine.lookahead import Lookahead
from pumice.engine.messages import Encode, Event, Snapshot
from pumice.engine.runner import Runner
from pumice.engine.schedule import FairPolicy, Members, Policy
from pumice.engine.scheduler import Scheduler
from pumice.engine.states import RecurrentStates


class Engine:
    """Generates any number of sequences, up to ``limits.n_seqs`` of them in one batch; the others wait.

    One thread owns it. ``policy`` decides who computes. ``lookahead``: most steps that a program takes by itself; -1:
    as many as a moment allows, by measure. ``masks``: of a model that generates by diffusion. ``tell`` is called where
    there are events before a step is computed.
    """

    def __init__(
        self, runner: Runner, policy: Policy | None = None, lookahead: int = -1, masks: Masks | None = None
    ) -> None:
        self.limits = limits = runner.limits
        self.runner = runner
        # A recurrent state holds a sequence's whole past, so blocks of its prefix alone are of no use.
        checkpoints = Checkpoints(range(limits.n_seqs, limits.n_slots)) if runner.keeps_states else None
        # What a decoder keeps depends on what its encoder read, too.
        shares = (not runner.recurrent or runner.keeps_states) and not runner.encodes
        self.cache = KVCache(limits, shares, checkpoints)
        states = RecurrentStates(runner, self.cache)
        self.scheduler = Scheduler(limits, policy or FairPolicy(), self.cache, states)
        can = replace(runner.capabilities, n_in_flight=1) if runner.encodes else runner.capabilities
        ahead = Lookahead(can, self.cache, lookahead)
        self.flights = Flights(runner, ahead, self.scheduler, self.cache, states, self._tell)
        self.encodings = Encodings(runner, self.cache, self.scheduler)
        self.denoising = Denoising(runner, self.cache, self.scheduler, masks) if masks else None
        self._events: list[Event] = []
        self.tell: Callable[[], None] = lambda: None

    @property
    def n_queued(self) -> int:
        """Sequences that wait, those aside for which there is a slot. Any thread may ask."""
        n_slots_free = self.scheduler.n_slots_free  # first: who comes in meanwhile is then not counted as waiting too
        return len(self.scheduler.waiting) - n_slots_free

    @property
    def busy(self) -> bool:
        """Whether ``step`` has something to do."""
        return bool(self.scheduler.running or self.scheduler.waiting or self._apart or self.flights.on_way)

    def add(self, generation: Generation) -> None:
        """Queue a generation."""
        if not self.cache.shares_prefixes:
            generation.after = None
        mask = generation.chain.mask
        if generation.n_left <= 0:
            generation.finish_reason = "length"
        elif mask is not None and not mask.any():
            generation.finish_reason = "stop"
        if self.denoising and not generation.finish_reason:
            self.denoising.add(generation)
            return
        self.scheduler.waiting.append(generation)
        self.scheduler.retire()

    def encode(self, command: Encode) -> None:
        """Queue texts to be encoded."""
        self.encodings.add(command)

    def cancel(self, ids: Container[int] | None = None) -> None:
        """End sequences now, at whatever token they are: these, or all."""
        if ids is not None:
            self.encodings.cancel(ids)
        if self.denoising:
            self.denoising.cancel(ids)
        for generation in self.scheduler.generations:
            if ids is None or generation.id in ids:
                generation.finish_reason = generation.finish_reason or "cancelled"
        self.scheduler.retire()

    def fail(self, error: Exception) -> None:
        """End all sequences by an error."""
        self.encodings.fail(error)
        if self.denoising:
            self.denoising.fail(error)
        self.scheduler.fail_all(error)
        self.flights.on_way.clear()

    def drain(self) -> list[Event]:
        """What happened since the last call."""
        events = [*self._events, *self.scheduler.events, *self.encodings.drain()]
        events += self.denoising.drain() if self.denoising else []
        self._events, self.scheduler.events = [], []
        return events

    def snapshot(self) -> Snapshot:
        return Snapshot(
            n_waiting=len(self.scheduler.waiting),
            n_running=len(self.scheduler.running),
            n_slots=self.limits.n_seqs,
            n_slots_free=self.scheduler.n_slots_free,
            n_blocks=self.limits.n_blocks,
            n_blocks_free=self.cache.free,
            n_steps=self.scheduler.n_steps,
        )

    def step(self) -> None:
        """Begin as many steps as there is use for, and go on with the tokens of the first of them.

        Where one fails, its sequences fail, and the others go on. Texts to be encoded, and those that diffusion fills,
        have steps of their own.
        """
        for apart in self._apart:
            self._step_of(apart)
        self.scheduler.end_late()
        while members := self.flights.choose():
            self._tell_of_entered()
            flight = self._begin(members)
            if flight is None:
                return
            if not flight.whole:  # its logits are not wanted: what computes it lets it go
                self._land(flight)
                return
        if self.flights.on_way:
            self._land(self.flights.on_way[0])

    def _tell(self, event: Event) -> None:
        self._events.append(event)

    def _tell_of_entered(self) -> None:
        if self.scheduler.events:
            self._events, self.scheduler.events = [*self._events, *self.scheduler.events], []
            self.tell()

    def _begin(self, members: Members) -> Flight | None:
        """Submit a step; None where that fails, and so do its members."""
        try:
            with self.failing_lost():
                for running, _ in members:
                    if running.memory and not running.is_read:
                        self.read(running, running.generation.request.prompt)
                        running.is_read = True
                return self.flights.begin(members)
        except Exception as error:
            self._end(members, error)
            return None

    def _land(self, flight: Flight, goes_on: bool = True) -> None:
        """Go on with the tokens of a step; where that fails so do its members."""
        failure = None
        try:
            with self.failing_lost():
                seconds = self.flights.land(flight, goes_on)
            self.scheduler.policy.took(flight.members, seconds)
            for running, _ in flight.members:
                self._events += running.generation.output()
        except Exception as error:
            failure = error
        self._end(flight.members, failure)

    def _end(self, members: Members, error: Exception | None) -> None:
        """The end of a step, however it ended."""
        if error:
            self.scheduler.fail([running for running, _ in members], error)
        self.scheduler.n_steps += 1
        self.scheduler.retire()

    @property
    def _apart(self) -> list[Encodings | Denoising]:
        """What has steps of its own, and something to do."""
        return [each for each in (self.encodings, self.denoising) if each and each.busy]

    def _step_of(self, apart: Encodings | Denoising) -> None:
        with suppress(Exception):  # they tell of their errors, and a step of those of steps on their way
            self.settle()
            with self.failing_lost():
                apart.step()

    # --- for what is outside the schedule

    def settle(self) -> None:
        """Let steps that are on their way come to their end."""
        while self.flights.on_way:
            self._land(self.flights.on_way[0], goes_on=False)

    @contextmanager
    def failing_lost(self) -> Iterator[None]:
        """Fail all sequences, and share nothing, where an error takes with it steps of any that were let go."""
        try:
            yield
        except Exception as error:
            if self.runner.lost:
                self.cache.forget()
                self.scheduler.fail(self.scheduler.running, error)
            raise

    def read(self, place: Place, prompt: Sequence[int]) -> None:
        """Have the encoder read a prompt into a place's memory."""
        assert place.memory is not None
        kept = Place(place.slot, place.memory.tables)
        self.runner.outputs(batch_of(self.cache, [Part(kept, prompt, 0)]), ENCODER)

    def profile(self) -> Generator[None, None, list[KernelTime]]:
        """Times of the kernels of the last step, by name, the longest first."""
        yield
        self.settle()
        with self.failing_lost():
            return self.runner.profile()
