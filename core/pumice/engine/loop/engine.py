"""Continuous batching: many sequences, one batch a step; prompts in chunks (prefill), then tokens (decode).

Everything that computes is a job of one scheduler. Generations share steps; readings (scores, logits, embeddings,
diffusion) have steps of their kind. Kinds take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from pumice.architecture import ENCODER, MAIN, Masks
from pumice.backend import KernelTime
from pumice.engine.cache.checkpoints import Checkpoints
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.cache.tiers import Tiers
from pumice.engine.drafts.speculation import Speculation
from pumice.engine.loop.diffusion import denoising
from pumice.engine.loop.flights import Flights
from pumice.engine.loop.lookahead import Lookahead
from pumice.engine.loop.policy import FairPolicy, SchedulingPolicy
from pumice.engine.loop.read_steps import ReadSteps
from pumice.engine.loop.scheduler import ReadMembers, Scheduler
from pumice.engine.loop.states import RecurrentStates
from pumice.engine.loop.steps.flight import Flight
from pumice.engine.loop.turns import Turns
from pumice.engine.media.rows import MediaRows
from pumice.engine.messages import LAST, Event, Failed, SavePrompt, Snapshot
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.batches import Part, Place, batch_of
from pumice.engine.requests.generation import Generation, Members, salt_of
from pumice.engine.requests.job import Active, EncoderPrompt, Job
from pumice.engine.requests.reading import ReadRequest
from pumice.errors import BackendError
from pumice.grammar import BudgetedReasoning

GENERATE = "generate"
"""The kind of generations, beside those of readings."""
BACKGROUND = 0.1
"""Weight of a request beside others of a higher priority."""


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
        self.scheduler = Scheduler(
            *(limits, policy or FairPolicy(), self.cache, states, self.speculation.close),
            reads_whole=self._reads_whole,
            is_recurrent=runner.recurrent,
        )
        self._turns = Turns()
        self._read_steps = ReadSteps(runner, self.cache, self.scheduler)
        can = replace(runner.capabilities, n_in_flight=1) if runner.encodes else runner.capabilities
        self._computes_apart = can.max_steps > 0
        ahead = Lookahead(can, self.cache, self.speculation.choice, lookahead)
        self.flights = Flights(runner, ahead, self.scheduler, self.cache, states, self._tell, self.speculation)
        if can.drafted and self.speculation.is_default:
            runner.prepare_drafts()
        self._masks = masks
        self._jobs: dict[int, Job] = {}  # by the ids of requests that have not ended
        self._events: list[Event] = []
        self.tell: Callable[[], None] = lambda: None

    @property
    def n_requests(self) -> int:
        """Return the number of requests of every kind that have not ended. Thread-safe."""
        return self.scheduler.n_requests

    @property
    def busy(self) -> bool:
        """True if ``step`` has something to do."""
        return bool(self._generates or self._reads or (self.tiers and self.tiers.busy))

    @property
    def tells_later(self) -> bool:
        """True if the events of this step are delivered after the next step is submitted.

        Programs that pick no tokens compute in this thread, so their events would come a step late.
        """
        return self._computes_apart and self._generates and not self._reads

    @property
    def _generates(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting or self.flights.on_way)

    @property
    def _reads(self) -> bool:
        return bool(self.scheduler.readers or self.scheduler.unread)

    def _reads_whole(self, kind: str) -> bool:
        """Return True if steps of a kind of readings compute whole sequences."""
        if kind != "hidden":
            return self._masks is not None or self.runner.needs_whole_sequences
        return self.runner.embedder is not None and self.runner.wants_whole(self.runner.embedder)

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
        if generation.finish_reason:
            self.scheduler.add(generation)
            self.scheduler.finish_waiting(generation)
        elif self._masks:
            self.read(denoising(generation, self._masks))
        else:
            self._jobs[generation.id] = generation
            self.scheduler.add(generation)

    def read(self, request: ReadRequest[Any]) -> None:
        """Queue the readings of a request, or fail it if its media have no program."""
        for reading in request.readings:
            graph = (self.runner.embedder or MAIN) if reading.kind == "hidden" else MAIN
            if reading.media and (error := self._media_error(graph, reading.media)):
                self._events += request.end_with(error)
                return
        self._events += request.end()  # without readings
        if request.readings and not request.ended:
            self._jobs[request.id] = request.readings[0]
            for reading in request.readings:
                self.scheduler.add_reading(reading)

    def _media_error(self, graph: str, media: MediaRows) -> Exception | None:
        """Compile programs for media outside of any step, whose members an error would fail; return the error."""
        if self.runner.compiles_media(graph, media.forms):
            self.settle()
        try:
            self.runner.compile_media(graph, media.forms)
        except BackendError as error:
            return error
        return None

    def cancel(self, ids: Container[int] | None = None) -> None:
        """Cancel these requests, or all, at once."""
        for id in list(self._jobs) if ids is None else [id for id in self._jobs if id in ids]:
            self.scheduler.stop(self._jobs.pop(id), "cancelled")

    def end(self, error: Exception) -> None:
        """End all requests: generations are cancelled, others fail with an error."""
        for id in list(self._jobs):
            job = self._jobs.pop(id)
            if isinstance(job, Generation):
                self.scheduler.stop(job, "cancelled")
            else:
                self.scheduler.fail_job(job, error)

    def end_reasoning(self, id: int) -> None:
        """End the reasoning of a sequence after its next token, if it has a reasoning budget."""
        job = self._jobs.get(id)
        if not isinstance(job, Generation):
            return
        for sampler in job.chain.masking:
            if isinstance(sampler, BudgetedReasoning):
                sampler.spend()
                job.chain.changed()

    def fail(self, error: Exception) -> None:
        """Fail all requests with an error; the engine is usable afterwards."""
        for flight in self.flights.on_way:
            with suppress(Exception):  # the first error is the reason
                flight.discard()
        self.flights.on_way.clear()
        self.cache.forget()
        self.scheduler.fail_all(error)

    def drain(self) -> list[Event]:
        """Return the events since the last call."""
        events = [*self._events, *self.scheduler.events]
        self._events, self.scheduler.events = [], []
        for event in events:
            if isinstance(event, LAST):
                self._jobs.pop(event.id, None)
        return events

    def snapshot(self) -> Snapshot:
        return Snapshot(
            n_waiting=len(self.scheduler.waiting) + self.scheduler.n_unread,
            n_running=len(self.scheduler.running),
            n_reading=self.scheduler.n_reading,
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
        """Compute a step of the kind of work whose turn it is.

        Of generations, submit as many steps as useful, and continue with the tokens of the first of them. If a step
        fails, its sequences fail, and the others continue.
        """
        self.scheduler.end_late()
        if self.tiers and not self.flights.on_way:
            with self.failing_lost():
                self.tiers.write_behind(idle=not (self._generates or self._reads))
        if not self.flights.on_way and self._reads:
            self.scheduler.admit()
            kind = self._next_kind()
            if kind != GENERATE and (members := self.scheduler.choose_readers(kind)):
                self._tell_of_entered()
                self._read(kind, members)
                return
        self._generate()

    def _weights(self) -> dict[str, float]:
        """Return the weights of the kinds that have work: their requests, fewer if others have a higher priority."""
        active = self.scheduler.active
        highest = max((item.priority for item in active), default=0)
        requests: dict[str, dict[object, float]] = {}
        for running in self.scheduler.running:
            requests.setdefault(GENERATE, {})[running] = 1.0 if running.priority == highest else BACKGROUND
        for reader in self.scheduler.readers:
            weight = 1.0 if reader.priority == highest else BACKGROUND
            requests.setdefault(reader.kind, {})[reader.reading.request] = weight
        return {kind: sum(weights.values()) for kind, weights in requests.items()}

    def _next_kind(self) -> str:
        weights = self._weights()
        return self._turns.next(weights) if weights else GENERATE

    def _generate(self) -> None:
        """Submit steps of generations, and land the first."""
        is_draining = bool(self.flights.on_way and self._reads)
        while not is_draining and (members := self.flights.choose()):
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

    def _read(self, kind: str, members: ReadMembers) -> None:
        """Compute a step of readings; if it fails, each alone, so that an error is that of one request."""
        weight, began = self._weights()[kind], time.perf_counter()
        try:
            self._read_encoder_prompts([reader for reader, _ in members])
            self._read_steps.compute(members)
            seconds = time.perf_counter() - began  # with log-probabilities, which take the host longer than a device
            self._turns.took(kind, seconds, weight)
            self.scheduler.policy.took(members, seconds)
        except Exception as error:
            self._fail_lost(error)
            if len(members) > 1 and not self.runner.lost:
                for member in members:
                    if member[0] in self.scheduler.readers:
                        self._read(kind, [member])
                return
            self.scheduler.fail([reader for reader, _ in members], error)
        self.scheduler.n_steps += 1

    def _read_encoder_prompts(self, members: Sequence[Active]) -> None:
        for active in members:
            prompt = active.job.encoder_prompt
            if prompt and not active.is_read:
                self.encode_prompt(active, prompt)
                active.is_read = True

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
            self._read_encoder_prompts([running for running, _ in members])
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
            self._turns.took(GENERATE, seconds, self._weights().get(GENERATE, 1.0))
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
            self.scheduler.fail(self.scheduler.active, error)

    def encode_prompt(self, place: Place, prompt: EncoderPrompt) -> None:
        """Let the encoder read a prompt into a place's memory."""
        assert place.memory is not None
        encoder_place = Place(place.slot, place.memory.tables)
        for start in range(0, len(prompt.tokens), self.limits.n_batch):
            part = Part(encoder_place, prompt.tokens[start : start + self.limits.n_batch], start, media=prompt.media)
            self.runner.outputs(batch_of(self.cache, [part]), ENCODER)

    def save(self, prompt: SavePrompt) -> Generator[None, None, int]:
        """Write the cache of a prompt to disk; return the number of its first tokens that are there."""
        turns = self.cache.save(prompt.tokens, salt_of(prompt.cache_salt, prompt.adapter_scales))
        while True:
            self.settle()
            try:
                with self.failing_lost():
                    next(turns)
            except StopIteration as end:
                return int(end.value)
            yield

    def profile(self) -> Generator[None, None, list[KernelTime]]:
        """Return the times of the last step's kernels by name, longest first."""
        yield
        self.settle()
        with self.failing_lost():
            return self.runner.profile()
