"""Steps after which the program picks the next tokens: one of any batch, or several of generating sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from pumice.backend.pick import Ahead, Ask
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.loop.steps.flight import Flight, discarding, goes_on
from pumice.engine.requests.generation import Members, Running

Going = Sequence[tuple[int, Running]]
"""Rows of picked tokens, and their sequences."""


@dataclass(eq=False)
class PickedSteps(Flight):
    """One step of any batch, or several of the latest token of each sequence, and of those that the program picks.

    A pick that is not exact gives candidates, from which the chain of its sequence chooses the token of a single step.
    """

    @classmethod
    def submit(
        cls, context: StepContext, members: Members, most: float, before: PickedSteps | None = None
    ) -> Self | None:
        """Submit ``most`` steps or fewer; return None if the host needs all logits, or blocks are missing.

        Args:
            context: the parts of the engine.
            members: sequences and their numbers of tokens.
            most: maximum number of steps.
            before: the steps that they follow, which have not ended.
        """
        lookahead = context.lookahead
        if any(running.generation.layers for running, _ in members):
            return None
        whole = [running for running, n_new in members if running.pending == n_new]
        can_pick = lookahead.decides if before else lookahead.picks
        if any(running.generation.needs_media_graph for running in whole) or not can_pick(whole):
            return None
        n_steps = lookahead.steps(members, most if len(whole) == len(members) else 1)
        if not n_steps:
            return None
        batch = context.batch([running.part(n_new) for running, n_new in members])
        if whole and not context.runner.picks(batch):
            return None
        ask = None
        if whole:
            ask = lookahead.ask(whole, n_steps, before.ask if before and whole == before.whole else None)
            if not before and lookahead.restricts([running.generation for running in whole]):
                ask = _restricted(context, whole, ask)
                if ask is None:
                    return None
        pending = context.runner.submit(batch, ask)
        context.speculation.passed(n_steps if before else n_steps - 1)
        flight = cls(context, members, whole, batch, pending, ask)
        if not before:
            with discarding(flight):
                flight.restrict()
        return flight

    # --- the steps behind these, which are submitted before their tokens are known

    def following(self) -> PickedSteps | None:
        """Submit the steps behind these, if all of their tokens are known, or come from slots; else return None.

        If the same sequences go on with a token each, a program keeps all that their picks depend on. Otherwise the
        scheduler chooses, among others prompts.
        """
        context, scheduler = self.context, self.context.scheduler
        if not self._may_be_followed():
            return None
        reads = any(running.reads_on for running in scheduler.running)
        most = 1 if reads else min(context.n_free(self.members) - 1, 2 * self.n_steps)
        if most < 1:
            return None
        ending = [running for running in scheduler.running if _ends(running)]
        is_single = len(self.whole) == len(self.batch.tokens)
        if is_single and not ending and context.is_alone(self.whole):
            return PickedSteps.submit(context, [(running, 1) for running in self.whole], most, self)
        if context.cache.checkpoints is not None or not self._passes_tokens():
            return None
        members = self._chosen(ending)
        return PickedSteps.submit(context, members, most, self) if members else None

    def _may_be_followed(self) -> bool:
        """Return True if each pick is the next token; a recurrent state cannot insert forced ones before others."""
        context, generations = self.context, [running.generation for running in self.whole]
        if not context.can.registers or self.lost or any(running.memory for running in self.whole):
            return False
        if not context.lookahead.decides(self.whole):
            return False
        return context.cache.checkpoints is None or not context.lookahead.restricts(generations)

    def _passes_tokens(self) -> bool:
        """Return True if any step after this one can take its tokens: their picks depend on no earlier tokens."""
        context = self.context
        if not context.runner.has_registers or context.speculation.layer is not None:
            return False
        if self.ask and any(pick.restricted or pick.last_n for pick in self.ask.picks):
            return False
        running = context.scheduler.running
        return not any(item.generation.media or item.generation.layers or item.memory for item in running)

    def _chosen(self, ending: Sequence[Running]) -> Members:
        """Return the members that the scheduler chooses beside sequences that end with the present step.

        A step that reads prompts and could take more tokens waits: sequences may arrive until the present one ends.
        """
        scheduler = self.context.scheduler
        members = scheduler.choose(ending)
        taken = dict(members)
        generations = [running.generation for running, n_new in members if running.pending == n_new]
        picks = [generation.chain.pick for generation in generations]
        if any(running.generation.media or running.memory for running in taken):
            return []
        if any(pick is None or pick.restricted for pick in picks):
            return []
        waits = any(item.pending > taken.get(item, 0) for item in scheduler.running if item not in ending)
        is_full = waits or sum(taken.values()) == scheduler.limits.n_batch
        return members if is_full or not any(running.reads_on for running in taken) else []

    # --- their tokens

    def take(self, following: Flight | None) -> None:
        """Continue with the tokens, and restrict the first pick of the steps that follow."""
        lost = self._take_tokens()
        if following:
            following.lost |= lost.intersection(running for running, _ in following.members)
            following.restrict()
        self.settle(following)

    def _take_tokens(self) -> set[Running]:
        """Continue with the tokens; return the sequences that ended or changed, whose later tokens are discarded."""
        if self.ask is None:
            self.pending.outputs()
            self.arrived()
            return set()
        going: Going = []
        n_done = 0
        for ahead in self.pending.tokens():
            if not n_done:
                current = self.arrived()
                going = [(row, running) for row, running in enumerate(self.whole) if running in current]
            finite = np.isfinite(ahead.logits[:, :, 0]).tolist()
            for step in range(len(ahead.picked)):
                going = self._take_step(going, ahead, step, finite[step], is_first=not n_done)
                n_done += 1
            if n_done == self.n_steps or not going:
                break
        return set(self.whole) - {running for _, running in going}

    def _take_step(self, going: Going, ahead: Ahead, step: int, finite: Sequence[bool], is_first: bool) -> Going:
        """Continue with the tokens of a step; return the rows of sequences for which the next one was computed."""
        scheduler, taken = self.context.scheduler, []
        for row, running in going:
            try:
                token = self.context.lookahead.token(running.generation, ahead, step, row, finite[row])
            except Exception as error:
                scheduler.fail([running], error)
                continue
            if token is None:  # its last token is computed again, for all logits
                running.undecided = True
                if is_first:
                    running.n_past, running.n_ahead = running.n_past - 1, running.n_ahead + 1
                continue
            if not is_first:
                scheduler.computed(running, 1)
            taken.append((row, running, token))
        scheduler.take([(running, token) for _, running, token in taken], self.context.least_forced)
        picked = ahead.picked[step]
        return [(row, running) for row, running, token in taken if token == picked[row] and goes_on(running)]


def _restricted(context: StepContext, whole: Sequence[Running], ask: Ask) -> Ask | None:
    """Return the ``Ask`` of a step with restrictions: with them, unless they may arrive later; None if one exceeds it.

    A recurrent state cannot go back, so a step that it may exceed is not begun.
    """
    if context.can.registers and context.cache.checkpoints is None:
        return ask
    restrictions = [context.lookahead.restriction(running) for running in whole]
    return None if any(running.undecided for running in whole) else replace(ask, restrictions=restrictions)


def _ends(running: Running) -> bool:
    """Return True if a sequence ends with the tokens that pending steps pick, whatever they are."""
    generation, n = running.generation, running.n_coming
    return bool(generation.finish_reason) or generation.n_left <= n or len(generation.tokens) + n > generation.n_ctx
