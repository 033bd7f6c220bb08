"""A step after which the host chooses the next tokens from the logits, and verifies what proposers drafted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pumice.engine.cache.blocks import BlockTables
from pumice.engine.drafts.drafter import Draft
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.loop.steps.flight import Flight, n_equal
from pumice.engine.requests import logprobs
from pumice.engine.requests.generation import Members, Running


@dataclass(eq=False)
class SampledStep(Flight):
    """A step whose next tokens are those that the chain of each sequence chooses, as long as they match its draft."""

    @classmethod
    def submit(cls, context: StepContext, members: Members, drafts: Mapping[Running, Draft], hears: bool) -> Self:
        """Submit a step; recurrent states are restored after a wrong drafted token.

        ``hears``: whether a layer that drafts may want its hidden states.
        """
        whole = [running for running, n_new in members if running.pending == n_new]
        drafted = {running: draft.tokens for running, draft in drafts.items()}
        rows = [(running, n_new + len(drafted[running])) for running, n_new in members if running in drafted]
        with ExitStack() as stack:
            if rows:
                stack.enter_context(context.states.taking_back(rows))
            batch = context.batch([running.part(n_new, drafted.get(running, ())) for running, n_new in members])
            graph = context.listening(members, batch) if hears and not batch.taps else None
            pending = context.runner.submit(batch, graph=graph) if graph else context.runner.submit(batch)
            submitted = context, members, whole, batch, pending
            return cls(*submitted, drafts=drafts, hears=graph is not None, restoring=stack.pop_all())

    def take(self, following: Flight | None) -> None:
        """Continue with the chosen tokens, except of sequences that ended while the step was pending."""
        with self.restoring:
            outputs = self.pending.outputs()
            current = self.arrived()
            if not self.whole:
                return
            logits, going, row = outputs["logits"], [], 0
            for running in self.whole:
                draft = self.drafts.get(running)
                if running in current:
                    going.append(_Verifying(running, row, draft.tokens if draft else (), running.tables))
                row += 1 + (len(draft.tokens) if draft else 0)
            while going:
                rows = [item.row for item in going]
                self._sample([item.running for item in going], logits if len(rows) == len(logits) else logits[rows])
                going = [item for item in going if self._verify_next(item)]

    def _sample(self, whole: Sequence[Running], logits: NDArray[np.float32]) -> None:
        """Continue with the tokens that the chains of sequences choose from their rows of logits.

        An error, such as logits that are not finite, is that of its sequence alone.
        """
        scheduler = self.context.scheduler
        totals = logprobs.totals(logits, [running.generation.wants_raw for running in whole])
        tokens: list[tuple[Running, int]] = []
        for running, row, total in zip(whole, logits, totals, strict=True):
            try:
                token = running.generation.sample(row, total=total)
            except Exception as error:
                scheduler.fail([running], error)
                continue
            assert token is not None
            tokens.append((running, token))
        scheduler.take(tokens)

    def _verify_next(self, verified: _Verifying) -> bool:
        """Return True if all next tokens were drafted, so that a row for the token after them exists."""
        n = verified.n_right()
        if not n:
            return False
        self.drafts[verified.running].n_accepted += n
        self.context.scheduler.computed(verified.running, n)
        verified.row, verified.drafted = verified.row + n, verified.drafted[n:]
        return verified.running.n_unread == 0


@dataclass(eq=False, slots=True)
class _Verifying:
    """A sequence whose draft is verified: its next token is from a row of logits, or was ``drafted`` correctly."""

    running: Running
    row: int
    drafted: Sequence[int]
    tables: BlockTables

    def n_right(self) -> int:
        """Return how many of its next tokens were drafted; 0 if it has ended."""
        running = self.running
        if not self.drafted or running.generation.finish_reason or running.tables is not self.tables:
            return 0
        return n_equal(running.generation.tokens[running.n_past :], self.drafted)
