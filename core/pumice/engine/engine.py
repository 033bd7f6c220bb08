"""Continuous batching: many sequences, one batch a step; prompts in chunks (prefill), then tokens (decode)."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from pumice.architecture import ENCODER, MAIN, Masks
from pumice.backend import KernelTime
from pumice.engine.batches import Part, Place, batch_of
from pumice.engine.checkpoints import Checkpoints
from pumice.engine.diffusion import Denoising
from pumice.engine.encodings import Encodings, PreparedTexts
from pumice.engine.flights import Flights
from pumice.engine.generation import EncoderPrompt, Generation
from pumice.engine.kv_cache import KVCache
from pumice.engine.lookahead import Lookahead
from pumice.engine.media import MediaRows
from pumice.engine.messages import Event, Failed, Snapshot
from pumice.engine.runner import Runner
from pumice.engine.schedule import FairPolicy, Members, SchedulingPolicy
from pumice.engine.scheduler import Scheduler
from pumice.engine.speculation import Speculation
from pumice.engine.states import RecurrentStates
from pumice.engine.steps.flight import Flight
from pumice.engine.tiers import Tiers
from pumice.errors import BackendError
from pumice.grammar import BudgetedReasoning


class Engine:
    """Generates any number of sequences, up to ``limits.n_seqs`` of them in one batch; the others wait.

    A single thread owns it.

    Args:
        policy: schedules the sequences.
        lookahead: maximum consecutive steps of a program; -1 derives it from times measured at the load.
        masks: settings of a model that generates by diffusion.
        speculation: drafts of tokens, for programs that compute one step at a time.
        tiers: take what leaves the cache; closed with the engine.
        tell: called with events that occur before a step is computed.
    """

    def __init__(
        self,
        runner: Runner,
        policy: SchedulingPolicy | None = None,
        lookahead: int = -1,
        masks: Masks | None = None,
        speculation: Speculation | None = None,
        tiers: Tiers | None = None,
    ) -> None:
        self.limits = limits = runner.limits
        self.runner = runner
        # A recurrent state depends on the whole past, so blocks of a prefix alone are useless.
        checkpoints = Checkpoints(range(limits.n_seqs, limits.n_slots)) if runner.keeps_states else None
        # A decoder's cache also depends on its encoder's input.
        shares = (not runner.recurrent or runner.keeps_states) and not runner.encodes
        self.cache = KVCache(limits, shares, checkpoints)
        self.tiers = tiers if shares else None
        if self.tiers:
            self.cache.spill_to(self.tiers)
        states = RecurrentStates(runner, self.cache)
        self.speculation = speculation or Speculation({})
        if self.speculation.next_tokens:
            self.speculation.next_tokens.cache = self.cache
        self.scheduler = Scheduler(limits, policy or FairPolicy(), self.cache, states, self.speculation.close)
        can = replace(runner.capabilities, n_in_flight=1) if runner.encodes else runner.capabilities
        self._computes_apart = can.max_steps > 0
        ahead = Lookahead(can, self.cache, self.speculation.choice, lookahead)
        self.flights = Flights(runner, ahead, self.scheduler, self.cache, states, self._tell, self.speculation)
        if can.drafted and self.speculation.is_default:
            runner.prepare_drafts()
        self.encodings = Encodings(runner, self.cache, self.scheduler)
        self.denoising = Denoising(runner, self.cache, self.scheduler, masks) if masks else None
        self._events: list[Event] = []
        self.tell: Callable[[], None] = lambda: None

    @property
    def n_queued(self) -> int:
        """Return the number of waiting sequences, except those with a free slot. Thread-safe."""
        n_slots_free = (
            self.scheduler.n_slots_free
        )  # read first, so that a sequence admitted meanwhile is not counted as waiting
        return len(self.scheduler.waiting) - n_slots_free

    @property
    def busy(self) -> bool:
        """True if ``step`` has something to do."""
        return bool(self._generates or self._apart or (self.tiers and self.tiers.busy))

    @property
    def tells_later(self) -> bool:
        """True if the next step passes on the events of this one, once it is submitted: the device computes meanwhile.

        Programs that pick no tokens compute in this thread, so their events would come a step late.
        """
        return self._computes_apart and self._generates and not self._apart

    @property
    def _generates(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting or self.flights.on_way)

    def add(self, generation: Generation) -> None:
        """Queue a generation, or fail it if its media have no program."""
        if generation.media and (error := self._media_error(MAIN, generation.media)):
            self._tell(Failed(generation.id, error))
            return
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

    def _media_error(self, graph: str, media: MediaRows) -> Exception | None:
        """Compile programs for media outside of any step, whose members an error would fail; return the error."""
        if self.runner.compiles_media(graph, media.forms):
            self.settle()
        try:
            self.runner.compile_media(graph, media.forms)
        except BackendError as error:
            return error
        return None

    def encode(self, texts: PreparedTexts) -> None:
        """Queue texts to be encoded, or fail them if their media have no program."""
        for media in filter(None, texts.media):
            if error := self._media_error(self.runner.embedder or MAIN, media):
                self._tell(Failed(texts.command.id, error))
                return
        self.encodings.add(texts)

    def cancel(self, ids: Container[int] | None = None) -> None:
        """Cancel these sequences, or all, at once."""
        if ids is not None:
            self.encodings.cancel(ids)
        if self.denoising:
            self.denoising.cancel(ids)
        for generation in self.scheduler.generations:
            if ids is None or generation.id in ids:
                generation.finish_reason = generation.finish_reason or "cancelled"
        self.scheduler.retire()

    def end_reasoning(self, id: int) -> None:
        """End the reasoning of a sequence after its next token, if it has a reasoning budget."""
        for generation in self.scheduler.generations:
            if generation.id == id:
                for sampler in generation.chain.masking:
                    if isinstance(sampler, BudgetedReasoning):
                        sampler.spend()
                        generation.chain.changed()

    def fail(self, error: Exception) -> None:
        """Fail all sequences with an error."""
        self.encodings.fail(error)
        if self.denoising:
            self.denoising.fail(error)
        self.scheduler.fail_all(error)
        self.flights.on_way.clear()

    def drain(self) -> list[Event]:
        """Return the events since the last call."""
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
            tiers=self.tiers.tallies if self.tiers else {},
        )

    def close(self) -> None:
        """Write what belongs on disk. The engine is not used afterwards."""
        if self.tiers:
            self.tiers.close()

    def step(self) -> None:
        """Submit as many steps as useful, and continue with the tokens of the first of them.

        If a step fails, its sequences fail, and the others continue. Encodings and diffusion have separate steps.
        """
        for apart in self._apart:
            self._step_of(apart)
        self.scheduler.end_late()
        if self.tiers and not self.flights.on_way:
            with self.failing_lost():
                self.tiers.write_behind(idle=not (self._generates or self._apart))
        while members := self.flights.choose():
            if not self._computes_apart:
                self._tell_of_entered()
            flight = self._begin(members)
            if flight is None:
                return
            if not flight.whole:  # without outputs; the program releases it
                self._tell_meanwhile()
                self._land(flight)
                return
        self._tell_meanwhile()
        if self.flights.on_way:
            self._land(self.flights.on_way[0])

    def _tell(self, event: Event) -> None:
        self._events.append(event)

    def _tell_meanwhile(self) -> None:
        """Pass on the events of the step before while the device computes this one."""
        if self._computes_apart:
            self.tell()

    def _tell_of_entered(self) -> None:
        if self.scheduler.events:
            self._events, self.scheduler.events = [*self._events, *self.scheduler.events], []
            self.tell()

    def _begin(self, members: Members) -> Flight | None:
        """Submit a step; on an error, fail its members and return None."""
        try:
            for running, _ in members:
                prompt = running.generation.encoder_prompt
                if prompt and not running.is_read:
                    self.read(running, prompt)
                    running.is_read = True
            return self.flights.begin(members)
        except Exception as error:
            self._fail_lost(error)
            self._end(members, error)
            return None

    def _land(self, flight: Flight, goes_on: bool = True) -> None:
        """Continue with the tokens of a step; on an error, fail its members."""
        failure = None
        try:
            seconds = self.flights.land(flight, goes_on)
            if not flight.repeats:  # repeated tokens would count as a prompt's
                self.scheduler.policy.took(flight.members, seconds / flight.n_steps)
            for running, _ in flight.members:
                self._events += running.generation.output()
        except Exception as error:
            self._fail_lost(error)
            failure = error
        self._end(flight.members, failure)

    def _end(self, members: Members, error: Exception | None) -> None:
        """Finish a step after success or an error."""
        if error:
            self.scheduler.fail([running for running, _ in members], error)
        self.scheduler.n_steps += 1
        self.scheduler.retire()

    @property
    def _apart(self) -> list[Encodings | Denoising]:
        """Return the work with separate steps that has something to do."""
        return [work for work in (self.encodings, self.denoising) if work and work.busy]

    def _step_of(self, apart: Encodings | Denoising) -> None:
        self.scheduler.n_steps += 1
        with suppress(Exception):  # these report their own errors
            self.settle()
            with self.failing_lost():
                apart.step()

    # --- for work outside of the schedule

    def settle(self) -> None:
        """Wait for all submitted steps."""
        while self.flights.on_way:
            self._land(self.flights.on_way[0], goes_on=False)

    @contextmanager
    def failing_lost(self) -> Iterator[None]:
        """On an error that affects released steps, fail all sequences and forget cached blocks."""
        try:
            yield
        except Exception as error:
            self._fail_lost(error)
            raise

    def _fail_lost(self, error: Exception) -> None:
        """Fail all sequences and forget cached blocks if an error affects released steps."""
        if self.runner.lost:
            self.cache.forget()
            self.scheduler.fail(self.scheduler.running, error)

    def read(self, place: Place, prompt: EncoderPrompt) -> None:
        """Let the encoder read a prompt into a place's memory."""
        assert place.memory is not None
        encoder_place = Place(place.slot, place.memory.tables)
        for start in range(0, len(prompt.tokens), self.limits.n_batch):
            part = Part(encoder_place, prompt.tokens[start : start + self.limits.n_batch], start, media=prompt.media)
            self.runner.outputs(batch_of(self.cache, [part]), ENCODER)

    def profile(self) -> Generator[None, None, list[KernelTime]]:
        """Return the times of the last step's kernels by name, longest first."""
        yield
        self.settle()
        with self.failing_lost():
            return self.runner.profile()
