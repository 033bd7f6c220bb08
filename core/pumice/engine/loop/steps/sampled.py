"""A step after which the host chooses the next tokens from the logits, and verifies what proposers drafted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from pumice.engine.cache.kv_cache import BlockTables
from pumice.engine.drafts.drafts import Draft
from pumice.engine.loop.steps.flight import Flight, n_equal
from pumice.engine.requests.generation import Running


@dataclass(eq=False, kw_only=True)
class SampledStep(Flight):
    """A step without drafts."""

    def take(self, following: Flight | None) -> None:
        """Continue with the token that each sequence's chain chooses from its row of logits."""
        context = self.context
        try:
            logits = self.pending.outputs()["logits"]
        finally:
            for running, _ in self.members:
                running.n_ahead = 0
        current = set(context.scheduler.running)  # without sequences that ended while the step was pending
        rows = [row for row, running in enumerate(self.whole) if running in current]
        context.computed([(running, n_new) for running, n_new in self.members if running in current])
        whole = [self.whole[row] for row in rows]
        context.sample(whole, logits if len(rows) == len(self.whole) else logits[rows])


@dataclass(eq=False, kw_only=True)
class HostVerifiedStep(Flight):
    """A step with drafts, whose next tokens are chosen from the logits as long as they match.

    Attributes:
        open: restores recurrent states after a wrong token.
    """

    open: ExitStack = field(default_factory=ExitStack)

    def take(self, following: Flight | None) -> None:
        """Continue with the tokens that each sequence's chain chooses, as long as they match its draft."""
        with self.open:
            logits = self.pending.outputs()["logits"]
            self.context.computed(self.members)
            going, row = [], 0
            for running in self.whole:
                draft = self.drafts.get(running)
                going.append(_Verifying(running, row, draft.tokens if draft else (), running.tables))
                row += 1 + (len(draft.tokens) if draft else 0)
            while going:
                self.context.sample([item.running for item in going], logits[[item.row for item in going]])
                going = [item for item in going if self._verify_next(item, self.drafts)]

    def _verify_next(self, verified: _Verifying, drafts: Mapping[Running, Draft]) -> bool:
        """Return True if all next tokens were drafted, so that a row for the token after them exists."""
        n = verified.n_right()
        if not n:
            return False
        draft = drafts[verified.running]
        draft.n_accepted += n
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
        if running.generation.finish_reason or running.tables is not self.tables:
            return 0
        return n_equal(running.generation.tokens[running.n_past :], self.drafted)
