"""A round: steps in which a layer or a draft model drafts, and the one that verifies their tokens, submitted together.

The tokens stay on the device, so the host waits once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pumice.backend.pick import Ahead
from pumice.engine.drafts.draft_steps import Drafter, passed_to
from pumice.engine.drafts.next_tokens import NextTokens
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.loop.steps.flight import Flight, goes_on
from pumice.engine.loop.steps.program_verified import ProgramVerifiedStep
from pumice.engine.requests.generation import Members, Running

UNKNOWN = -1  # in place of a token that the host does not know


@dataclass(eq=False, kw_only=True)
class Round(ProgramVerifiedStep):
    """The step that verifies the drafted tokens of each sequence.

    Attributes:
        name: the proposer.
        n_round: tokens of each sequence that were drafted in steps submitted with it.
    """

    name: str = ""
    n_round: int = 0

    @classmethod
    def begin(cls, context: StepContext, members: Members) -> Round | None:
        """Submit a round; None if nobody drafts in rounds for these sequences, or it would not pay."""
        speculation, lookahead = context.speculation, context.lookahead
        sequences, lengths = [running for running, _ in members], lookahead.lengths(len(members))
        drafter = speculation.drafter(members, context.runner)
        if drafter is None or not lookahead.drafts(members) or not all(map(drafter.knows, sequences)):
            return None
        if context.drafting.waits_for_program(members) or speculation.looks_up(members):
            return None
        n = speculation.round_length(drafter, sequences, lengths)
        n_drafted = next((length for length in lengths if length >= n), 0)
        if not n or not drafter.holds(sequences, n) or not lookahead.passes(sequences, n_drafted, 1):
            return None
        return cls._submit(context, drafter, members, n, n_drafted)

    @classmethod
    def _submit(
        cls,
        context: StepContext,
        drafter: Drafter,
        members: Members,
        n: int,
        n_drafted: int,
        before: Round | None = None,
    ) -> Round | None:
        """Submit a round of ``n`` tokens, padded to ``n_drafted``; None after an error of the drafter."""
        start, speculation, sequences = context.now(), context.speculation, [running for running, _ in members]
        try:
            if before and isinstance(drafter, NextTokens):
                drafts = drafter.submit_after(sequences, before.pending, n, n_drafted)
            else:
                drafts = drafter.submit(sequences, n)
        except Exception as error:
            speculation.drop_drafter(drafter, sequences, error)
            return None
        speculation.passed(1)
        passed = passed_to(drafts, len(members), n_drafted, n)
        flight = cls.submit_rows(context, members, [()] * len(members), n_drafted, passed, before)
        flight.start, flight.name, flight.n_round = start, drafter.name, n
        return flight

    def following(self) -> Round | None:
        """Submit a round behind this one; None if others wait, or this one may be the last."""
        context, speculation, sequences = self.context, self.context.speculation, list(self.whole)
        assert self.ask is not None
        n_drafted, lengths = self.ask.n_drafted, context.lookahead.lengths(len(sequences))
        if not (self.hears and context.can.follows) or self.lost or not context.is_alone(sequences):
            return None
        layer = speculation.lone_layer(self.members)
        if layer is None or not layer.holds_after(sequences, n_drafted):
            return None
        if any(running.generation.n_left <= 1 + n_drafted for running in sequences):
            return None
        if speculation.looks_up(self.members) or speculation.round_length(layer, sequences, lengths) != self.n_round:
            return None
        if context.lookahead.passes(sequences, n_drafted, 2) < 2:
            return None
        return self._submit(context, layer, self.members, self.n_round, n_drafted, self)

    def take(self, following: Flight | None) -> None:
        """Continue with the tokens of this round.

        The batch gets the positions of its rows and the tokens that are known now: those that were right.
        """
        lost = self._take_tokens(next(self.pending.tokens()))
        if following is None:
            self.read_again()
            return
        assert self.context.speculation.next_tokens is not None
        self.context.speculation.next_tokens.went_on(self.whole, lost)
        self.hears = False
        following.lost |= lost

    def _take_tokens(self, ahead: Ahead) -> set[Running]:
        """Continue with the tokens of this round; return the sequences that ended or changed."""
        n, speculation = self.n_round, self.context.speculation
        tokens, positions = (array.reshape(len(self.whole), -1) for array in (self.batch.tokens, self.batch.positions))
        picked, lost = ahead.picked[0].reshape(tokens.shape), set(self.whole)
        assert ahead.n_taken is not None
        drafter = speculation.drafter(self.members, self.context.runner)
        for index, running in enumerate(self.whole):
            tokens[index, 0] = running.generation.tokens[-1]
            positions[index] = running.n_past + np.arange(tokens.shape[1])
            if drafter:
                drafter.took(running, picked[index, : min(int(ahead.n_taken[0, index]) - 1, n - 1)].tolist())
        for index, (running, n_taken, n_accepted) in self.take_verified(ahead):
            tokens[index, 1:n_taken] = picked[index, : n_taken - 1]
            tokens[index, n_taken:] = UNKNOWN
            running.generation.timings.drafted(n, min(max(0, n_accepted), n))
            running.generation.timings.drafts_exact = speculation.is_exact
            speculation.judge_round(self.name, running, n, min(n_taken - 1, n))
            if n_accepted == n_taken - 1 and goes_on(running):
                lost.discard(running)
        return lost
