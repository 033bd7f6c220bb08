"""Steps with rows of drafts, which the program verifies.

The drafts are tokens of proposers, or those that a layer or a draft model leaves in the slots in a round: its steps are
submitted with the one that verifies them, so the host waits once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from pumice.architecture import MAIN
from pumice.backend.pick import Ahead, Ask
from pumice.backend.step import draft_of_slot
from pumice.engine.drafts.drafter import Draft, Drafter
from pumice.engine.loop.lookahead import Lookahead
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.loop.steps.flight import Flight, goes_on, n_equal
from pumice.engine.requests.batches import batch_of
from pumice.engine.requests.generation import Generation, Members, Running
from pumice.engine.requests.grammar_rows import restricted

UNKNOWN = -1  # in place of a token that the host does not know


@dataclass(eq=False, kw_only=True)
class VerifiedStep(Flight):
    """A step with exact picks that verifies drafts.

    Attributes:
        n_drafted: drafted rows of each sequence.
        drafter: the layer or draft model that drafts in a round.
        n_round: tokens of each sequence that it drafts.
    """

    n_drafted: int
    drafter: Drafter | None = None
    n_round: int = 0

    # --- submission: drafts of proposers, or of a round

    @classmethod
    def submit(cls, context: StepContext, members: Members, drafts: Mapping[Running, Draft]) -> Self | None:
        """Submit a step that verifies drafts of proposers, padded to a number of tokens that the program offers.

        None if the host has to verify them.
        """
        lookahead, sequences = context.lookahead, [running for running, _ in members]
        if not lookahead.verifies(members):
            return None
        longest = max(len(draft.tokens) for draft in drafts.values())
        n_drafted = next((n for n in lookahead.lengths(len(members)) if n >= longest), 0)
        if not n_drafted or not lookahead.has_room(sequences, n_drafted, 1):
            return None
        context.runner.prepare_drafts()
        tokens = [list(drafts[running].tokens) if running in drafts else [] for running in sequences]
        flight = cls._submit_rows(context, members, tokens, n_drafted)
        flight.drafts = drafts
        return flight

    @classmethod
    def begin_round(cls, context: StepContext, members: Members, drafter: Drafter, n: int) -> Self | None:
        """Submit a round of ``n`` tokens; None if blocks are missing, or after an error of the drafter."""
        lookahead, sequences = context.lookahead, [running for running, _ in members]
        n_drafted = next(length for length in lookahead.lengths(len(members)) if length >= n)
        if not lookahead.has_room(sequences, n_drafted, 1):
            return None
        return cls._submit_round(context, drafter, members, n, n_drafted)

    @classmethod
    def _submit_round(
        cls,
        context: StepContext,
        drafter: Drafter,
        members: Members,
        n: int,
        n_drafted: int,
        before: Flight | None = None,
    ) -> Self | None:
        """Submit a round of ``n`` tokens, padded to ``n_drafted``; None after an error of the drafter."""
        speculation, sequences = context.speculation, [running for running, _ in members]
        try:
            if before:
                drafter.submit_after(sequences, n, n_drafted)
            else:
                drafter.submit(sequences, n)
        except Exception as error:
            speculation.drop(drafter, sequences, "submit", error)
            return None
        speculation.passed(1 if before else 0)
        drafts = [draft_of_slot(i) for i in range(n)]
        flight = cls._submit_rows(context, members, [drafts] * len(members), n_drafted, before)
        flight.drafter, flight.n_round = drafter, n
        return flight

    @classmethod
    def _submit_rows(
        cls,
        context: StepContext,
        members: Members,
        tokens: Sequence[Sequence[int]],
        n_drafted: int,
        before: Flight | None = None,
    ) -> Self:
        """Submit a step with ``n_drafted`` rows of each sequence behind its last token.

        Drafts are padded, and may be those of slots. ``before``: a step of the kind that it follows.
        """
        sequences = [running for running, _ in members]
        ask, parts = _ask_rows(context.lookahead, sequences, n_drafted, bool(before)), []
        if any(pick.restricted for pick in ask.picks):
            generations = [running.generation for running in sequences]
            tokens, ask = restricted(ask, generations, tokens, context.can.picks.added)
        for running, drafted in zip(sequences, tokens, strict=True):
            padding = [running.generation.tokens[-1]] * (n_drafted - len(drafted))
            parts.append(running.part(1, [*drafted, *padding]))
        batch = batch_of(context.cache, parts)
        graph = context.listening(members, batch) or MAIN
        if batch.takes_from_slots:
            graph = context.runner.model.listening or MAIN  # steps behind each other are of one graph
        if before:
            batch.positions, batch.relative = np.tile(np.arange(1 + n_drafted, dtype=np.int32), len(sequences)), True
        pending = context.runner.submit(batch, ask, graph)
        submitted = context, members, sequences, batch, pending, ask
        return cls(*submitted, n_drafted=n_drafted, hears=graph != MAIN)

    # --- the round behind this one, which is submitted before its tokens are known

    def following(self) -> VerifiedStep | None:
        """Submit a round behind this one; None if others wait, or the tokens are to be known first.

        A layer drafts whose hidden states stay on the device.
        """
        context, speculation, sequences = self.context, self.context.speculation, list(self.whole)
        if not context.can.registers or self.lost or not context.is_alone(self.whole):
            return None
        if any(running.generation.n_left <= 1 + self.n_drafted for running in sequences):
            return None
        drafter, lengths = self.drafter, context.lookahead.lengths(len(sequences))
        if not self.hears or drafter is None or not drafter.holds_after(sequences, self.n_drafted):
            return None
        if not drafter.submits(context.runner) or not speculation.follows(drafter, sequences, lengths, self.n_round):
            return None
        if not context.lookahead.has_room(sequences, self.n_drafted, 2):
            return None
        return self._submit_round(context, drafter, self.members, self.n_round, self.n_drafted, self)

    # --- their tokens

    def take(self, following: Flight | None) -> None:
        """Continue with the right tokens of the drafts, and the token behind them."""
        lost = self._take_tokens(next(self.pending.tokens()))
        self.settle(following)
        if following is None:
            return
        following.lost |= lost.intersection(running for running, _ in following.members)
        if self.drafter:
            self.drafter.went_on(self.whole, lost)
            self.hears = False

    def _take_tokens(self, ahead: Ahead) -> set[Running]:
        """Continue with the tokens; return the sequences that ended or changed within them."""
        assert ahead.n_taken is not None
        n_taken = ahead.n_taken[0].tolist()
        for i, running in enumerate(self.whole) if self.drafter else ():
            self._note_taken(ahead, i, running, n_taken[i])
        current = self.arrived()
        members = [(i, running) for i, running in enumerate(self.whole) if running in current]
        n_before = [len(running.generation.generated) for running in self.whole]
        for i, running in members:
            running.n_ahead += n_taken[i] - 1
        going = {running for i, running in members if self._take_rows(ahead, i, n_taken[i])}
        for i, running in members:
            self._judge(running, n_taken[i], len(running.generation.generated) - n_before[i] - 1)
        return set(self.whole) - going

    def _take_rows(self, ahead: Ahead, index: int, n_taken: int) -> bool:
        """Continue with the tokens of rows of a sequence; return True if all were of use.

        Rows of tokens that a mask forces, and that the sequence has appended by itself, are skipped.
        """
        lookahead, scheduler, running = self.context.lookahead, self.context.scheduler, self.whole[index]
        generation, tables, begin = running.generation, running.tables, index * (1 + self.n_drafted)
        rows, drafted = range(begin, begin + n_taken), self.batch.tokens[begin + 1 :][: self.n_drafted]
        while rows:
            row, rows = rows[0], rows[1:]
            if not np.isfinite(ahead.logits[0, row, 0]):  # its last token is computed again, for all logits
                running.undecided = True
                running.n_past, running.n_ahead = running.n_past - 1, running.n_ahead + 1
                return False
            generation.chain.skip(lookahead.draws(generation))
            scheduler.take([(running, lookahead.picked(generation, ahead, 0, row))], self.context.least_forced)
            if running.n_unread > 1 and running.tables is tables and not generation.finish_reason:
                n_computed = n_equal(generation.tokens[running.n_past : -1], drafted[row - begin :])
                scheduler.computed(running, n_computed)
                rows = rows[n_computed:]
            if not goes_on(running) or not _was_expected(generation):
                return False
            if rows:
                scheduler.computed(running, 1)
        return True

    def _note_taken(self, ahead: Ahead, index: int, running: Running, n_taken: int) -> None:
        """Give the batch the positions of a sequence's rows, and the tokens that are known now: the right ones."""
        n_rows, picked = 1 + self.n_drafted, ahead.picked[0]
        first = index * n_rows
        tokens = self.batch.tokens[first : first + n_rows]
        tokens[0], tokens[n_taken:] = running.generation.tokens[-1], UNKNOWN
        tokens[1:n_taken] = picked[first : first + n_taken - 1]
        self.batch.positions[first : first + n_rows] = len(running.generation.tokens) - 1 + np.arange(n_rows)
        assert self.drafter is not None
        self.drafter.took(running, picked[first : first + min(n_taken - 1, self.n_round - 1)].tolist())

    def _judge(self, running: Running, n_taken: int, n_accepted: int) -> None:
        """Record how many drafted tokens of a sequence were accepted."""
        if self.drafter:
            name, speculation = self.drafter.name, self.context.speculation
            speculation.judge_round(name, running, self.n_round, n_taken - 1, n_accepted)
        elif (draft := self.drafts.get(running)) and n_accepted > 0:
            coming = running.generation.generated[-1 - n_accepted :]
            draft.n_accepted = min(n_accepted, n_equal(draft.tokens, coming))


def _ask_rows(lookahead: Lookahead, sequences: Sequence[Running], n_drafted: int, follows: bool) -> Ask:
    """Return the ``Ask`` of a step that verifies drafts, with a random number for each row.

    ``follows``: of a step behind another one, with the numbers of both.
    """
    ask = lookahead.ask(sequences, (1 + follows) * (1 + n_drafted), with_pending=follows)
    return replace(ask, numbers=ask.numbers.T.reshape(1, -1), n_drafted=n_drafted)


def _was_expected(generation: Generation) -> bool:
    """Return True if the restriction behind the latest token, if there is one, was known before the step."""
    pick = generation.chain.pick
    return pick is None or not pick.restricted or generation.chain.was_expected
