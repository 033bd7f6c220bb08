"""Consecutive steps that verify what the program drafts by itself, so that others are submitted behind them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from pumice.engine.drafts.device_drafts import DraftPlan
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.loop.steps.flight import Flight
from pumice.engine.loop.steps.verified_rows import ask_rows, take_rows
from pumice.engine.requests.batches import batch_of
from pumice.engine.requests.generation import Members, Running


@dataclass(eq=False, kw_only=True)
class ProgramDraftedSteps(Flight):
    """Steps with exact picks that verify drafts of the program.

    Attributes:
        plan: the number of steps, and of tokens that each drafts.
    """

    plan: DraftPlan

    @classmethod
    def submit(cls, context: StepContext, members: Members, plan: DraftPlan, before: Flight | None = None) -> Self:
        """Submit the steps of a plan, optionally behind others of the same kind."""
        start, sequences = context.now(), [running for running, _ in members]
        if before:
            assert before.ask is not None
            ask, tables = before.ask, context.cache.batch_tables([running.tables for running in sequences])
            batch = replace(before.batch, block_tables=tables)
        else:
            texts = context.speculation.device.texts(sequences)
            ask = replace(ask_rows(context.lookahead, sequences, plan), texts=texts)
            parts = [running.part(1, running.generation.tokens[-1:] * plan.n_drafted) for running in sequences]
            batch = batch_of(context.cache, parts)
        pending = context.runner.submit(batch, ask, before.pending if before else None)
        for running in sequences:
            running.n_ahead += 1
        submitted = context, start, members, sequences, batch, pending, ask
        return cls(*submitted, plan=plan, behind=before is not None)

    def following(self) -> ProgramDraftedSteps | None:
        """Submit steps with drafts behind these; None if the tokens of these are to be known first.

        They go on from the text on the device. The host does not know how many random numbers these steps take, so
        picks that draw any wait.
        """
        context, current, plan = self.context, self.whole, self.plan
        if not context.can.follows or self.lost or not context.is_alone(current):
            return None
        if not all(running.generation.chain.certain for running in current):
            return None
        if any(running.generation.n_left <= plan.n_steps * (1 + plan.n_drafted) for running in current):
            return None
        if not context.speculation.device.goes_on(current, plan, context.can.max_steps):
            return None
        if context.lookahead.passes(current, plan.n_drafted, 2 * plan.n_steps) < 2 * plan.n_steps:
            return None
        return ProgramDraftedSteps.submit(context, self.members, plan, self)

    def take(self, following: Flight | None) -> None:
        """Continue with the tokens of the steps."""
        lost = self._take_tokens()
        if following:
            following.lost |= lost
        else:
            self.read_again()

    def _take_tokens(self) -> set[Running]:
        """Continue with the tokens of the steps; return the sequences that ended or changed within them."""
        context, plan, ahead = self.context, self.plan, next(self.pending.tokens())
        assert ahead.n_taken is not None
        taken = dict(zip(self.whole, ahead.n_taken.T.tolist(), strict=True))
        self.lost |= {running for running in taken if running.generation.finish_reason}
        going = [(index, running) for index, running in enumerate(self.whole) if running not in self.lost]
        for _, running in going:
            running.n_ahead += sum(taken[running]) - 1
        for step in range(plan.n_steps):
            for _, running in going:
                running.generation.timings.drafted(plan.n_drafted, taken[running][step] - 1)
                running.generation.timings.drafts_exact = context.speculation.is_exact
            first = 1 + plan.n_drafted
            going = [
                (index, running)
                for index, running in going
                if take_rows(context, running, ahead, step, range(index * first, index * first + taken[running][step]))
            ]
        context.note_result()
        ended = self.lost | {running for running in taken if running.generation.finish_reason}
        current = {running: numbers for running, numbers in taken.items() if running not in ended}
        context.speculation.device.took(current, plan)
        return set(taken) - {running for _, running in going}
