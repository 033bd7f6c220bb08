"""A step of any batch after which the program picks the next tokens, and steps of prompts submitted before it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pumice.backend.pick import Ahead, Ask
from pumice.backend.step import Batch
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.loop.steps.flight import Flight
from pumice.engine.requests.batches import batch_of
from pumice.engine.requests.generation import Members, Running


def ask_of(context: StepContext, batch: Batch, whole: Sequence[Running]) -> Ask | None:
    """Return the ``Ask`` for the next token of each whole sequence; None if all logits are needed."""
    lookahead = context.lookahead
    if not whole or not context.runner.picks(batch) or not lookahead.decides(whole):
        return None
    ask = lookahead.ask([running.generation for running in whole], 1)
    if not lookahead.restricts([running.generation for running in whole]):
        return ask
    restrictions = [lookahead.restriction(running) for running in whole]
    return None if any(running.undecided for running in whole) else replace(ask, restrictions=restrictions)


@dataclass(eq=False, kw_only=True)
class PickedStep(Flight):
    """A step of any batch, after which the program picks the next token of each sequence that it reads whole, if any.

    Attributes:
        is_advanced: True if its tokens count as computed, since a step may follow that was submitted before it ended.
    """

    is_advanced: bool = False

    # --- the next step of prompts is submitted before its tokens are known

    def following(self) -> PickedStep | None:
        """Submit a step behind this one, whose tokens it takes on the device; None if it has to wait for them.

        A step that could take more tokens waits: sequences may arrive until this one has ended.
        """
        scheduler = self.context.scheduler
        if not self.may_pass_tokens():
            return None
        current = self.current()
        self.context.advance([(running, n_new) for running, n_new in self.members if running in current])
        self.is_advanced = True
        for running in self.whole:
            running.n_coming = 1
        if not any(running.reads_on for running in scheduler.running):
            return None
        ending = [running for running in self.whole if _ends_with_next(running)]
        members = scheduler.choose(ending)
        taken = dict(members)
        others = [running for running in scheduler.running if running not in ending]
        is_full = sum(taken.values()) == scheduler.limits.n_batch or any(
            running.pending > taken.get(running, 0) for running in others
        )
        return self._submit_after(members) if members and is_full else None

    def _submit_after(self, members: Members) -> PickedStep | None:
        """Submit a step behind this one; None if the program cannot decide all of its tokens."""
        context, start = self.context, self.context.now()
        if any(running.generation.media or running.memory for running, _ in members):
            return None
        whole = [running for running, n_new in members if running.pending == n_new]
        generations = [running.generation for running in whole]
        if not context.lookahead.decides(whole) or context.lookahead.restricts(generations):
            return None
        batch = batch_of(context.cache, [running.part(n_new) for running, n_new in members])
        if whole and not context.runner.picks(batch):
            return None
        rows = {running: -1 - row for row, running in enumerate(self.whole)}
        for (running, _), first in zip(members, batch.seq_starts, strict=False):
            if running.n_coming:
                batch.tokens[first] = rows[running]
        ask = context.lookahead.ask(generations, 1, [running.n_coming for running in whole]) if whole else None
        pending = context.runner.submit(batch, ask, after=self.pending)
        context.speculation.passed(1)
        return PickedStep(context, start, members, whole, batch, pending, ask, behind=True)

    # --- its tokens

    def take(self, following: Flight | None) -> None:
        """Continue with the picked tokens, or with those that the host chooses if a logit is not finite."""
        context = self.context
        ahead = next(self.pending.tokens()) if self.ask else None
        if ahead is None:
            self.pending.outputs()
        context.note_result()
        current = self.current()
        members = [(running, n_new) for running, n_new in self.members if running in current]
        rows = [(row, running) for row, running in enumerate(self.whole) if running in current]
        for running in self.whole:
            running.n_coming = 0
        is_finite = ahead is None or bool(np.isfinite(ahead.logits[0, [row for row, _ in rows], 0]).all())
        if not is_finite and context.cache.checkpoints is not None:
            for running, _ in members:  # the same step again would advance recurrent states twice
                context.scheduler.begin_again(running)
                running.undecided = running in self.whole
            return
        logits = None if is_finite else context.runner.run(self.batch)
        if not self.is_advanced:
            context.advance(members)
        context.report(members)
        if logits is not None:
            if following:
                following.lost |= set(self.whole)
            context.sample([running for _, running in rows], logits[[row for row, _ in rows]])
        elif ahead is not None:
            tokens = [(running, self._token(running, ahead, row)) for row, running in rows]
            if following:
                following.batch = _with_tokens(following, dict(tokens))
            context.scheduler.take(tokens, context.least_forced)

    def _token(self, running: Running, ahead: Ahead, row: int) -> int:
        token = self.context.lookahead.token(running.generation, ahead, 0, row)
        assert token is not None
        return token


def _ends_with_next(running: Running) -> bool:
    """Return True if a sequence ends with its next token, whatever that is, or its context is full."""
    generation = running.generation
    return generation.n_left <= 1 or len(generation.tokens) >= generation.n_ctx


def _with_tokens(flight: Flight, picked: Mapping[Running, int]) -> Batch:
    """Return the batch of a flight with the tokens that the step before it picked, now that they are known."""
    tokens = flight.batch.tokens.copy()
    for (running, _), first in zip(flight.members, flight.batch.seq_starts, strict=False):
        if tokens[first] < 0:
            tokens[first] = picked.get(running, 0)
    return replace(flight.batch, tokens=tokens)
