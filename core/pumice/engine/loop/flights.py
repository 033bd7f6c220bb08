"""Submitted steps: the engine keeps several steps in flight, and continues with the tokens of the first.

The next tokens are chosen by the samplers from a step's logits, or picked by the program; exact picks are followed by
further steps before the host has read them. ``steps`` has a class for each kind of step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from pumice.architecture import MAIN, STREAM
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.drafts.drafter import Draft, may_draft
from pumice.engine.drafts.speculation import Round, Speculation
from pumice.engine.loop.lookahead import Lookahead
from pumice.engine.loop.scheduler import Scheduler
from pumice.engine.loop.states import RecurrentStates
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.loop.steps.flight import Flight, discarding
from pumice.engine.loop.steps.picked import PickedSteps
from pumice.engine.loop.steps.sampled import SampledStep
from pumice.engine.loop.steps.verified import VerifiedStep
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
        self._context = StepContext(runner, lookahead, scheduler, cache, states, speculation, tell)

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

    def land(self, flight: Flight, goes_on: bool = True) -> None:
        """Wait for a flight, and continue with its tokens.

        Args:
            flight: the oldest flight.
            goes_on: whether another flight may be submitted behind it before it ends.
        """
        self.on_way.remove(flight)
        following = flight.following() if goes_on else None
        with discarding(following):
            flight.take(following)
        if following:
            self.on_way.append(following)
        if flight.hears:
            self._speculation.landed(flight.batch, flight.members, flight.pending.outputs()[STREAM])
        self._speculation.took(flight.drafts)

    # --- who drafts the next tokens, and who chooses them

    def _begin(self, members: Members) -> Flight:
        context, speculation = self._context, self._speculation
        if self._can.n_in_flight > 1:
            return SampledStep.submit(context, members, {}, hears=False)
        if missed := self._missed(members):
            speculation.passed(1)
            return SampledStep.submit(context, missed, {}, hears=True)
        drafts: Mapping[Running, Draft] = {}
        if context.waits_for_program(members):
            speculation.passed(1)
        else:
            planned = self._drafts(members)
            if not isinstance(planned, Round):
                drafts = planned
            elif flight := VerifiedStep.begin_round(context, members, planned.drafter, planned.n):
                return flight
        if drafts and (verified := VerifiedStep.submit(context, members, drafts)):
            return verified
        n_free = context.n_free(members)
        waits_for_layer = n_free == 1 and speculation.hears(members)
        if not drafts and not waits_for_layer and self._can.max_steps:
            is_first = self._can.registers and not any(running.memory for running, _ in members)
            most = min(n_free, FIRST_STEPS) if is_first else n_free
            if picked := PickedSteps.submit(context, members, most):
                return picked
        hears = bool(drafts) or not self._can.max_steps or n_free == 1
        return SampledStep.submit(context, members, drafts, hears)

    def _drafts(self, members: Members) -> Mapping[Running, Draft] | Round:
        """Return the drafts of proposers for a step, or a round.

        With masks, drafts are those that the program verifies at most, since the host takes long.
        """
        context, speculation, limits = self._context, self._speculation, self._scheduler.limits
        if not self.lookahead.verifies(members):
            return speculation.draft(members, context.cache, limits)
        lengths = self.lookahead.lengths(len(members))
        if self.lookahead.restricts([running.generation for running, _ in members]):
            return speculation.draft(members, context.cache, limits, most=lengths[-1])
        drafter = speculation.drafter(members, context.runner)
        return speculation.draft(members, context.cache, limits, drafter=drafter, rounds=lengths)

    def _missed(self, members: Members) -> Members:
        """Return the members with the tokens whose hidden states a layer that drafts missed; none if it missed none.

        A program that picks tokens gives none. The layer may begin at any block, so the tokens of the latest block are
        computed again. Keys outside of attention windows may be gone, and recurrent states do not go back.
        """
        context, limits = self._context, self._scheduler.limits
        if self._speculation.layer is None or context.cache.checkpoints is not None:
            return []
        if context.runner.model.listening == MAIN or set(limits.n_blocks) != {0}:
            return []
        if not all(may_draft(running, n_new) for running, n_new in members) or context.waits_for_program(members):
            return []
        missing = self._speculation.missing(members)
        if not missing or limits.n_batch < len(members) + limits.block_size:
            return []
        for running in missing[: (limits.n_batch - len(members)) // limits.block_size]:
            running.n_again = running.n_past % limits.block_size
            running.n_past -= running.n_again
        return [(running, running.pending) for running, _ in members]
