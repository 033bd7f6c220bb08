"""Consecutive steps whose tokens the program decides, so that others are submitted behind them before they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from pumice.backend.pick import Ahead, Ask
from pumice.backend.step import Batch, Pending
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.loop.steps.flight import Flight, discarding, goes_on
from pumice.engine.requests.batches import Part, batch_of
from pumice.engine.requests.generation import Members, Running


def may_decide(context: StepContext, members: Members) -> bool:
    """Return True if the program decides all tokens of a batch, so that no step has to be undone."""
    if not context.can.follows:
        return False
    if not all(running.memory is None and context.lookahead.trusts(running.generation) for running, _ in members):
        return False
    if context.cache.checkpoints is None:
        return True
    # a recurrent state cannot insert forced tokens before others
    return not context.lookahead.restricts([running.generation for running, _ in members])


@dataclass(eq=False, kw_only=True)
class DecidedSteps(Flight):
    """Steps with exact picks: of the latest token of each sequence, and of those that the program picks.

    Attributes:
        versions: versions of each sequence's block tables.
    """

    versions: Sequence[int]

    # --- submission: the first ones, the next ones of the same sequences, or of those that do not end

    @classmethod
    def submit(cls, context: StepContext, members: Members, n_steps: int) -> Self:
        """Submit ``n_steps`` steps of sequences that generate."""
        start, whole = context.now(), [running for running, _ in members]
        ask = context.lookahead.ask([running.generation for running in whole], n_steps)
        for running in whole:
            running.n_ahead = n_steps
        batch = batch_of(context.cache, [running.part(n_new) for running, n_new in members])
        pending = context.runner.submit(batch, ask)
        context.speculation.passed(n_steps - 1)
        submitted = context, start, members, whole, batch, pending, ask
        flight = cls(*submitted, versions=[running.tables.version for running in whole])
        with discarding(flight):
            flight.restrict()
        return flight

    def following(self) -> DecidedSteps | None:
        """Submit the next steps of these sequences, or of those of them that do not end."""
        n_steps = self._n_following()
        return self._submit_behind(n_steps) if n_steps else self._submit_after()

    def _n_following(self) -> int:
        """Return how many steps to submit behind these: none if others wait for admission, or some have left.

        None either if proposers are asked for drafts in the next step.
        """
        context, drafting = self.context, self.context.drafting
        current = [running for running, _ in self.members if not running.generation.finish_reason]
        if self.lost or len(current) != len(self.members) or len(current) != len(context.scheduler.running):
            return 0
        n_free = drafting.n_free(self.members) - 1  # steps after the latest one that ask for no drafts
        if drafting.is_left_to_program([(running, 1) for running in current]):
            n_free = 0 if drafting.plan(current).n_steps else context.speculation.device.most_plain(current)
        if n_free < 1 or context.scheduler.may_admit():
            return 0
        return context.lookahead.steps(self.members, self.n_steps, min(n_free, 2 * self.n_steps))

    def _submit_behind(self, n_steps: int) -> DecidedSteps:
        """Submit ``n_steps`` steps of the same sequences behind these; unchanged arrays are reused."""
        context, start = self.context, self.context.now()
        ask = context.lookahead.ask([item.generation for item in self.whole], n_steps, self.n_steps, self.ask)
        versions = [running.tables.version for running in self.whole]
        tables = self.batch.block_tables
        if versions != self.versions:
            tables = context.cache.batch_tables([running.tables for running in self.whole])
        batch = replace(self.batch, positions=self.batch.positions + self.n_steps, block_tables=tables)
        pending = context.runner.submit(batch, ask, self.pending)
        return self._submitted(start, self.members, batch, pending, ask, versions)

    def _submit_after(self) -> DecidedSteps | None:
        """Submit steps behind these without the sequences that end in them; None if the others must wait."""
        context, lookahead = self.context, self.context.lookahead
        going = [(running, n_new) for running, n_new in self.members if self._is_left(running)]
        if not 1 < len(going) < len(self.members) or not self.may_pass_tokens():
            return None
        others = set(context.scheduler.running) - self.current()
        if others or context.scheduler.may_admit() or context.drafting.is_left_to_program(going):
            return None
        most = min(context.drafting.n_free(self.members) - 1, 2 * self.n_steps)
        n_steps = lookahead.steps(going, self.n_steps, most) if most >= 1 else 0
        if not n_steps:
            return None
        start, whole = context.now(), [running for running, _ in going]
        rows = {running: -1 - row for row, (running, _) in enumerate(self.members)}
        parts = [Part(item, [0], item.n_past + self.n_steps, [0], item.generation.adapter_scales) for item in whole]
        batch = batch_of(context.cache, parts)
        batch.tokens[:] = [rows[running] for running in whole]
        ask = lookahead.ask([running.generation for running in whole], n_steps, self.n_steps)
        pending = context.runner.submit(batch, ask, after=self.pending)
        versions = [running.tables.version for running in whole]
        return self._submitted(start, going, batch, pending, ask, versions)

    def _submitted(
        self, start: float, members: Members, batch: Batch, pending: Pending, ask: Ask, versions: Sequence[int]
    ) -> DecidedSteps:
        """Return the flight of steps that were submitted behind these."""
        n_steps = len(ask.numbers)
        for running, _ in members:
            running.n_ahead = self.n_steps + n_steps
        self.context.speculation.passed(n_steps)
        submitted = self.context, start, members, [running for running, _ in members], batch, pending, ask
        return DecidedSteps(*submitted, versions=versions, behind=True)

    def _is_left(self, running: Running) -> bool:
        """Return True if a member is not known to end with these steps."""
        generation = running.generation
        is_current = running not in self.lost and not generation.finish_reason
        return is_current and generation.n_left > self.n_steps and running.n_past + self.n_steps < generation.n_ctx

    # --- their tokens

    def take(self, following: Flight | None) -> None:
        """Continue with the picked tokens, and restrict the first pick of the steps behind them."""
        lost = self._take_picked(self._wait())
        if following:
            following.lost |= lost
            following.restrict()
        self._compare()
        if following is None:
            self.read_again()

    def _wait(self) -> list[_Landed]:
        """Return the picked tokens of each sequence, up to the first token without a finite logit."""
        ahead = next(self.pending.tokens())
        self.context.note_result()
        finite = np.isfinite(ahead.logits[:, :, 0])
        n_good = np.where(finite.all(axis=0), self.n_steps, finite.argmin(axis=0)).tolist()
        rows = enumerate(zip(self.members, n_good, strict=True))
        return [_Landed(running, ahead, row, n) for row, ((running, _), n) in rows if running not in self.lost]

    def _take_picked(self, landed: Sequence[_Landed]) -> set[Running]:
        """Continue with the picked tokens.

        Return the sequences that ended or changed within these steps: their tokens of later steps are discarded.
        """
        context = self.context
        going = [item for item in landed if not item.running.generation.finish_reason]
        for item in going:
            item.running.undecided = item.n_good < self.n_steps
        for step in range(self.n_steps):
            tokens = [(item.running, self._picked(item, step)) for item in going if step < item.n_good]
            context.scheduler.take(tokens, context.least_forced)
            going = [item for item in going if step < item.n_good and goes_on(item.running)]
        return {item.running for item in landed} - {item.running for item in going}

    def _picked(self, landed: _Landed, step: int) -> int:
        """Return the token of a computed step."""
        running, ahead, row, _ = landed
        generation, lookahead = running.generation, self.context.lookahead
        generation.chain.skip(lookahead.draws(generation))
        self.context.scheduler.computed(running, 1)
        running.n_ahead -= 1
        return lookahead.picked(generation, ahead, step, row)

    def _compare(self) -> None:
        """Compare the tokens of these steps with what the program would have drafted."""
        context = self.context
        current = [(running, 1) for running, _ in self.members if not running.generation.finish_reason]
        if len(current) == len(self.members) and context.drafting.is_left_to_program(current):
            longest = context.lookahead.lengths(len(current))[-1]
            context.speculation.device.took_plain([item for item, _ in current], longest, self.n_steps)


class _Landed(NamedTuple):
    """A row of picked tokens: those of a sequence, of which the first ``n_good`` have finite logits."""

    running: Running
    ahead: Ahead
    row: int
    n_good: int
