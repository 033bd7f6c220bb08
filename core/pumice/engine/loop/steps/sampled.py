"""A step after which the host chooses the next tokens from the logits, and verifies what proposers drafted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pumice.engine.cache.tables import BlockTables
from pumice.engine.loop.steps.flight import Flight, n_equal
from pumice.engine.requests.generation import Running


@dataclass(eq=False, kw_only=True)
class SampledStep(Flight):
    """A step whose next tokens are those that the chain of each sequence chooses, as long as they match its draft."""

    def take(self, following: Flight | None) -> None:
        """Continue with the chosen tokens, except of sequences that ended while the step was pending."""
        context = self.context
        with self.restoring:
            try:
                logits = self.pending.outputs()["logits"]
            finally:
                for running, _ in self.members:
                    running.n_ahead = 0
            current = set(context.scheduler.running)
            context.computed([(running, n_new) for running, n_new in self.members if running in current])
            going, row = [], 0
            for running in self.whole:
                draft = self.drafts.get(running)
                if running in current:
                    going.append(_Verifying(running, row, draft.tokens if draft else (), running.tables))
                row += 1 + (len(draft.tokens) if draft else 0)
            while going:
                rows = [item.row for item in going]
                context.sample([item.running for item in going], logits if len(rows) == len(logits) else logits[rows])
                going = [item for item in going if self._verify_next(item)]

    def _verify_next(self, verified: _Verifying) -> bool:
        """Return True if all next tokens were drafted, so that a row for the token after them exists."""
        n = verified.n_right()
        if not n:
            return False
        self.drafts[verified.running].n_accepted += n
        self.context.scheduler.computed(verified.running, n)
        verified.row, verified.drafted = verified.row + n, verified.drafted[n:]
        return verified.running.pending == 0


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
