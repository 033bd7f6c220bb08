"""Continuous batching: many sequences, one batch a step; prompts in chunks (prefill), then tokens (decode).

Everything that computes is a job of one scheduler. Generations share steps; readings (scores, logits, embeddings,
diffusion) have steps of their kind. Kinds take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from pumice.adapters import Adapter
from pumice.architecture import MAIN, Masks
from pumice.engine.cache.blocks import Checkpoints
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.cache.tiers import Tiers
from pumice.engine.drafts.speculation import Speculation
from pumice.engine.loop.diffusion import denoising
from pumice.engine.loop.flight import Flight, StepContext
from pumice.engine.loop.flights import Flights
from pumice.engine.loop.lookahead import Lookahead
from pumice.engine.loop.places import Places, RecurrentStates
from pumice.engine.loop.policy import FairPolicy, SchedulingPolicy, Turns, weights_of
from pumice.engine.loop.read_steps import ReadSteps
from pumice.engine.loop.scheduler import Scheduler
from pumice.engine.messages import Event, Failed, Snapshot
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.generation import GENERATE, Generation, Members
from pumice.engine.requests.job import Job
from pumice.engine.requests.reading import Reading, ReadMembers, ReadRequest
from pumice.errors import BackendError, RequestError
from pumice.grammar import BudgetedReasoning


class Engine:
    """Generates any number of sequences, up to ``limits.n_seqs`` of them in one batch; the others wait.

    A single thread owns it. ``tell`` is called when events occur before a step is computed.

    Args:
        policy: schedules the sequences.
        lookahead: maximum consecutive steps of a program; -1 derives it from times measured at the load.
        masks: settings of a model that generates by diffusion.
        speculation: drafts of tokens, for programs that compute one step at a time.
        tiers: take what leaves the cache; closed with the engine.
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
        shares = (not runner.model.recurrent or runner.keeps_states) and not runner.model.encodes
        self.cache = KVCache(limits, shares, checkpoints)
        if tiers and shares:
            self.cache.spill_to(tiers)
        states = RecurrentStates(runner, self.cache)
        self.speculation = speculation or Speculation({})
        if self.speculation.layer:
            self.speculation.layer.cache = self.cache
        places = Places(limits, policy or FairPolicy(), self.cache, states, runner.model.recurrent)
        self.scheduler = Scheduler(limits, places, self.cache, self.speculation.close)
        self._turns = Turns()
        self._read_steps = ReadSteps(runner, self.cache, self.scheduler, fills_masks=masks is not None)
        can = replace(runner.capabilities, n_in_flight=1) if runner.model.encodes else runner.capabilities
        self._computes_apart = can.max_steps > 0
        ahead = Lookahead(can, self.cache, self.speculation.choice, lookahead)
        tell = self.scheduler.events.append
        self.flights = Flights(StepContext(runner, ahead, self.scheduler, self.cache, states, self.speculation, tell))
        if can.drafted and self.speculation.is_default:
            runner.prepare_drafts()
        self._masks = masks
        self.tell: Callable[[], None] = lambda: None

    @property
    def n_requests(self) -> int:
        """Return the number of requests of every kind that have not ended. Thread-safe."""
        return len(self.scheduler.jobs)

    @property
    def busy(self) -> bool:
        """True if ``step`` has something to do."""
        return self._generates or self.scheduler.reads or (self.cache.tiers is not None and self.cache.tiers.busy)

    @property
    def tells_later(self) -> bool:
        """True if the events of this step are delivered after the next step is submitted.

        Programs that pick no tokens compute in this thread, so their events would come a step late.
        """
        return self._computes_apart and self._generates and not self.scheduler.reads

    @property
    def _generates(self) -> bool:
        return self.scheduler.generates or bool(self.flights.on_way)

    def add(self, generation: Generation) -> None:
        """Queue a generation, or fail it if it cannot run."""
        mask = generation.chain.mask
        if not self.cache.shares_prefixes:
            generation.after = None
        if error := self._refusal(MAIN, generation):
            self.scheduler.events.append(Failed(generation.id, error))
        elif generation.n_left <= 0 or (mask is not None and not mask.any()):
            generation.begin()
            self.scheduler.events += generation.stop("length" if generation.n_left <= 0 else "stop")
        elif self._masks:
            self.read(denoising(generation, self._masks))
        else:
            self.scheduler.add([generation])

    def read(self, request: ReadRequest[Any]) -> None:
        """Queue the readings of a request, or fail it if one cannot run."""
        for reading in request.readings:
            reading.whole = self._read_steps.reads_whole(reading.kind)
            graph = (self.runner.model.embedder or MAIN) if reading.kind == "hidden" else MAIN
            if error := self._refusal(graph, reading):
                self.scheduler.events += request.end_with(error)
                return
        if request.readings:
            self.scheduler.add(request.readings)
        else:
            self.scheduler.events += request.end()

    def _refusal(self, graph: str, job: Job) -> Exception | None:
        """Return why a job cannot run: an adapter was removed after the request was checked, or its media fail.

        Programs for media are compiled outside of any step, whose members an error would fail.
        """
        if any(key not in self.runner.adapters for key, _ in job.adapters):
            return RequestError("adapters: one that this request uses was removed while it was sent")
        media = job.media
        if not media:
            return None
        if self.runner.compiles_media(graph, media.forms):
            self.settle()
        try:
            self.runner.compile_media(graph, media.forms)
        except BackendError as error:
            return error
        return None

    def cancel(self, id: int) -> None:
        """Cancel a request, if it has not ended."""
        self.scheduler.stop(id, "cancelled")

    def end(self, error: Exception) -> None:
        """End all requests: generations are cancelled, others fail with an error."""
        for job in list(self.scheduler.jobs.values()):
            if isinstance(job, Generation):
                self.cancel(job.id)
            else:
                self.scheduler.fail_job(job, error)

    def end_reasoning(self, id: int) -> None:
        """End the reasoning of a sequence after its next token, if it has a reasoning budget."""
        job = self.scheduler.jobs.get(id)
        if isinstance(job, Generation):
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
        for job in list(self.scheduler.jobs.values()):
            self.scheduler.fail_job(job, error)

    def drain(self) -> list[Event]:
        """Return the events since the last call."""
        events = self.scheduler.events.copy()
        self.scheduler.events.clear()
        return events

    def snapshot(self) -> Snapshot:
        jobs, n_running = self.scheduler.jobs, len(self.scheduler.running)
        n_reading = sum(job.request.begun for job in jobs.values() if isinstance(job, Reading))
        return Snapshot(
            n_waiting=len(jobs) - n_running - n_reading,
            n_running=n_running,
            n_reading=n_reading,
            n_slots=self.limits.n_seqs,
            n_slots_free=len(self.scheduler.places.generations.slots),
            n_blocks=self.limits.n_blocks,
            n_blocks_free=self.cache.free,
            n_steps=self.scheduler.places.n_steps,
            n_lacked=self.scheduler.places.n_lacked,
            tiers=self.cache.tiers.tallies if self.cache.tiers else {},
        )

    def close(self) -> None:
        """Write what belongs on disk. The engine is not used afterwards."""
        if self.cache.tiers:
            self.cache.tiers.close()

    def step(self) -> None:
        """Compute a step of the kind of work whose turn it is.

        Of generations, submit as many steps as useful, and continue with the tokens of the first of them. If a step
        fails, its sequences fail, and the others continue.
        """
        self.scheduler.end_late()
        if self.cache.tiers and not self.flights.on_way:
            with self.failing_lost():
                self.cache.tiers.write_behind(idle=not (self._generates or self.scheduler.reads))
        if not self.flights.on_way and self.scheduler.reads:
            self.scheduler.admit()
            weights = weights_of(self.scheduler.places.active)
            kind = self._turns.next(weights) if weights else GENERATE
            if kind != GENERATE and (members := self.scheduler.choose_readers(kind)):
                self.tell()
                self._read(kind, members, weights)
                return
        self._generate()

    def _generate(self) -> None:
        """Submit steps of generations, and land the first."""
        first: Flight | None = None
        is_draining = bool(self.flights.on_way and self.scheduler.reads)
        while not is_draining and (members := self.flights.choose()):
            if not self._computes_apart:
                self.tell()
            flight = self._begin(members)
            if flight is None:
                return
            if not flight.whole:  # without outputs; the program releases it
                first = flight
                break
        if self._computes_apart:
            self.tell()  # the events of the step before, while the device computes this one
        if first or self.flights.on_way:
            self._land(first or self.flights.on_way[0])

    def _read(self, kind: str, members: ReadMembers, weights: Mapping[str, float]) -> None:
        """Compute a step of readings; if it fails, each alone, so that an error is that of one request."""
        self._turns.took(kind, self.scheduler.policy.cost(members), weights)
        try:
            with self.failing_lost():
                self._read_steps.read_encoder_prompts([reader for reader, _ in members])
                self._read_steps.compute(members)
        except Exception as error:
            if len(members) > 1 and not self.runner.lost:
                for member in members:
                    if member[0] in self.scheduler.readers:
                        self._read(kind, [member], weights)
                return
            self.scheduler.fail([reader for reader, _ in members], error)
        self.scheduler.places.n_steps += 1

    def _begin(self, members: Members) -> Flight | None:
        """Submit a step; on an error, fail its members and return None."""
        try:
            with self.failing_lost():
                self._read_steps.read_encoder_prompts([running for running, _ in members])
                return self.flights.begin(members)
        except Exception as error:
            self._end(members, error)
            return None

    def _land(self, flight: Flight, goes_on: bool = True) -> None:
        """Continue with the tokens of a step; on an error, fail its members."""
        failure = None
        try:
            with self.failing_lost():
                if self.scheduler.reads:  # otherwise the only kind has every turn
                    cost = flight.n_steps * self.scheduler.policy.cost(flight.members)
                    self._turns.took(GENERATE, cost, weights_of(self.scheduler.places.active))
                self.flights.land(flight, goes_on)
                for running, _ in flight.members:
                    self.scheduler.events += running.output()
        except Exception as error:
            failure = error
        self._end(flight.members, failure)

    def _end(self, members: Members, error: Exception | None) -> None:
        """Finish a step after success or an error."""
        if error:
            self.scheduler.fail([running for running, _ in members], error)
        self.scheduler.places.n_steps += 1
        self.scheduler.retire()

    # --- for work outside of the schedule

    def settle(self) -> None:
        """Wait for all submitted steps."""
        while self.flights.on_way:
            self._land(self.flights.on_way[0], goes_on=False)

    def adapt(self, adapters: Mapping[str, Adapter]) -> None:
        """Let requests use these adapters, by key. Those that requests have begun with stay until the next change.

        Raises ModelError for one that does not fit, and BackendError; nothing has changed then.
        """
        self.settle()
        used = {key for job in self.scheduler.jobs.values() for key, _ in job.adapters}
        kept = {key: adapter for key, adapter in self.runner.adapters.items() if key in used}
        if (chosen := {**kept, **adapters}).keys() != self.runner.adapters.keys():
            self.runner.adapt(chosen)

    @contextmanager
    def failing_lost(self) -> Iterator[None]:
        """On an error that affects released steps, fail all sequences and forget cached blocks."""
        try:
            yield
        except Exception as error:
            if self.runner.lost:
                self.cache.forget()
                self.scheduler.fail(self.scheduler.places.active, error)
            raise

    def save(self, tokens: Sequence[int], salt: bytes) -> Generator[None, None, int]:
        """Write the cache of a prompt to disk; return the number of its first tokens that are there."""
        turns = self.cache.save(tokens, salt)
        while True:
            self.settle()
            try:
                with self.failing_lost():
                    next(turns)
            except StopIteration as end:
                return int(end.value)
            yield
