"""Submitted steps: the engine keeps several steps in flight, and continues with the tokens of the first.

The next tokens are chosen by the samplers from a step's logits, or picked by the program: guesses are verified by the
samplers, and exact picks are followed by further steps before the host has read them. ``steps`` has a class for each
kind of step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from pumice.architecture import STREAM
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.drafts.drafts import Draft
from pumice.engine.drafts.speculation import Speculation
from pumice.engine.loop.lookahead import Lookahead
from pumice.engine.loop.scheduler import Scheduler
from pumice.engine.loop.states import RecurrentStates
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.loop.steps.drafting import Drafting
from pumice.engine.loop.steps.flight import Flight, discarding
from pumice.engine.loop.steps.picked import PickedSteps, may_decide
from pumice.engine.loop.steps.single import SingleSteps
from pumice.engine.loop.steps.verified import VerifiedStep, n_verified
from pumice.engine.messages import Event
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.generation import Members, Running

FIRST_STEPS = 2
"""Steps of the first of several flights behind each other; each has at most twice as many steps as the one before.

A program that records steps takes longer for many of them than a device for a few: recording 16 steps of 16 sequences
of llama-1b took 24 to 45 ms on an H100's machine, in which its tokens waited, and computing them 16.
"""


class Flights:
    """Submits steps, and processes their results in order.

    Args:
        tell: called with each event.
    """

    def __init__(
        self,
        runner: Runner,
        lookahead: Lookahead,
        scheduler: Scheduler,
        cache: KVCache,
        states: RecurrentStates,
        tell: Callable[[Event], None],
        speculation: Speculation,
    ) -> None:
        self.on_way: deque[Flight] = deque()
        self.lookahead = lookahead
        self._can = lookahead.can
        self._scheduler = scheduler
        self._speculation = speculation
        self._drafting = Drafting(speculation, lookahead, runner, scheduler, cache)
        self._context = StepContext(runner, lookahead, scheduler, cache, states, self._drafting, tell)
        self._single = SingleSteps(self._context)

    def choose(self) -> Members:
        """Return the members of the next step, or an empty list if enough steps are pending.

        If the program takes several steps at once, the sequences are divided among them.
        """
        if len(self.on_way) >= self._can.n_in_flight:
            return []
        if self._can.n_in_flight == 1:
            return self._scheduler.choose()
        busy = [running for flight in self.on_way for running, _ in flight.members]
        n_waiting = self._scheduler.waiting.n_ready
        n_all = min(len(self._scheduler.running) + n_waiting, self._scheduler.limits.n_seqs)
        return self._scheduler.choose(busy, -(-n_all // self._can.n_in_flight))

    def begin(self, members: Members) -> Flight:
        """Submit a step, or several consecutive ones if the program may compute them, and return the flight."""
        flight = self._begin(members)
        self.on_way.append(flight)
        return flight

    def land(self, flight: Flight, goes_on: bool = True) -> float:
        """Wait for a flight, continue with its tokens, and return its seconds.

        Args:
            flight: the oldest flight.
            goes_on: whether another flight may be submitted behind it before it ends.
        """
        self.on_way.remove(flight)
        context, landed = self._context, self._context.landed
        began = max(flight.start, landed) if flight.behind else flight.start
        following = flight.following() if goes_on else None
        with discarding(following):
            flight.take(following)
        if following:
            self.on_way.append(following)
        if context.landed == landed:
            context.note_result()
        if flight.hears:
            self._speculation.landed(flight.batch, flight.members, flight.pending.outputs()[STREAM])
        self._speculation.took(flight.drafts)
        return context.now() - began

    # --- who chooses the next tokens, and who drafts them

    def _begin(self, members: Members) -> Flight:
        context, drafting = self._context, self._drafting
        if self._can.n_in_flight > 1:
            return self._single.submit(members, {}, hears=False)
        if again := drafting.missed(members):
            self._speculation.passed(1)
            return self._single.submit(again, {}, hears=True)
        if paired := VerifiedStep.begin_round(context, members):
            return paired
        drafts, n_free = drafting.of_host(members)
        return self._submit(members, drafts, n_free)

    def _submit(self, members: Members, drafts: Mapping[Running, Draft], n_free: int) -> Flight:
        """Submit a step that verifies these drafts, or without any as many as the program may compute by itself."""
        context = self._context
        if drafts and (n_drafted := n_verified(context, members, drafts)):
            return VerifiedStep.submit(context, members, drafts, n_drafted)
        if drafts or not self._can.max_steps or (n_free == 1 and self._drafting.waits_for_layer(members)):
            return self._single.submit(members, drafts, hears=True)
        is_decided = may_decide(context, members)
        n_steps = self.lookahead.steps(members, most=min(n_free, FIRST_STEPS) if is_decided else n_free)
        generations = [running.generation for running, _ in members]
        if n_steps and (is_decided or not self.lookahead.restricts(generations)):
            return PickedSteps.submit(context, members, n_steps, is_decided)
        return self._single.submit(members, {}, hears=n_free <= 1)
