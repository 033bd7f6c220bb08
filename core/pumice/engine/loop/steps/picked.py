"""Steps after which the program picks the next tokens: one of any batch, or several of generating sequences."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from pumice.backend.pick import Ahead, Ask
from pumice.backend.step import LATEST, Batch
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.loop.steps.flight import Flight, discarding, goes_on
from pumice.engine.requests.batches import Part, batch_of
from pumice.engine.requests.generation import Members, Running

Going = Sequence[tuple[int, Running]]
"""Rows of picked tokens, and their sequences."""


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


def may_decide(context: StepContext, members: Members) -> bool:
    """Return True if the program decides all tokens of a batch, so that no step has to be undone."""
    if not context.can.registers:
        return False
    if not all(running.memory is None and context.lookahead.trusts(running.generation) for running, _ in members):
        return False
    if context.cache.checkpoints is None:
        return True
    # a recurrent state cannot insert forced tokens before others
    return not context.lookahead.restricts([running.generation for running, _ in members])


@dataclass(eq=False, kw_only=True)
class PickedSteps(Flight):
    """One step of any batch, or several of the latest token of each sequence, and of those that the program picks.

    Other steps are submitted before these end if the program decides all tokens. Otherwise they are guesses, which the
    chain of each sequence verifies; its steps end at a wrong one. Later tokens overwrite cache entries computed beyond
    that, and recurrent states are restored.

    Attributes:
        decided: the program decides all tokens.
        versions: versions of each sequence's block tables; None for a step of any batch.
        is_advanced: True if tokens of a step of any batch count as computed, since another may follow before it ends.
    """

    decided: bool = True
    versions: Sequence[int] | None = None
    is_advanced: bool = False

    @classmethod
    def submit(cls, context: StepContext, members: Members, n_steps: int, decided: bool) -> Self:
        """Submit ``n_steps`` steps of generating sequences."""
        start, whole = context.now(), [running for running, _ in members]
        with ExitStack() as restoring:
            if not decided:
                restoring.enter_context(context.states.taking_back([(running, n_steps) for running in whole]))
            ask = context.lookahead.ask([running.generation for running in whole], n_steps)
            batch = batch_of(context.cache, [running.part(n_new) for running, n_new in members])
            pending = context.runner.submit(batch, ask)
            context.speculation.passed(n_steps - 1)
            versions = [running.tables.version for running in whole]
            submitted = context, start, members, whole, batch, pending, ask
            flight = cls(*submitted, decided=decided, versions=versions, restoring=restoring.pop_all())
        if decided:
            for running in whole:
                running.n_ahead = n_steps
            with discarding(flight):
                flight.restrict()
        return flight

    # --- the steps behind these, which are submitted before their tokens are known

    def following(self) -> PickedSteps | None:
        """Submit the steps behind these; None if their tokens are to be known first."""
        if not self.decided:
            return None
        if self.versions is None:
            return self._follow_with_prompts()
        n_steps = self._n_following()
        return self._follow(n_steps) if n_steps else self._follow_without_ending()

    def _n_following(self) -> int:
        """Return how many steps of the same sequences to submit: none if others wait for admission, or some have left.

        None either if proposers are asked for drafts in the next step.
        """
        context = self.context
        current = [running for running, _ in self.members if not running.generation.finish_reason]
        if self.lost or len(current) != len(self.members) or len(current) != len(context.scheduler.running):
            return 0
        n_free = context.drafting.n_free(self.members) - 1  # steps after the latest one that ask for no drafts
        if n_free < 1 or context.scheduler.may_admit():
            return 0
        return context.lookahead.steps(self.members, self.n_steps, min(n_free, 2 * self.n_steps))

    def _follow(self, n_steps: int) -> PickedSteps:
        """Submit ``n_steps`` steps of the same sequences; unchanged arrays are reused."""
        context, start = self.context, self.context.now()
        ask = context.lookahead.ask([item.generation for item in self.whole], n_steps, self.n_steps, self.ask)
        versions = [running.tables.version for running in self.whole]
        tables = self.batch.block_tables
        if versions != self.versions:
            tables = context.cache.batch_tables([running.tables for running in self.whole])
        tokens = self.batch.tokens if self.behind else np.full(len(self.whole), LATEST, np.int32)
        positions = self.batch.positions + self.n_steps
        batch = replace(self.batch, tokens=tokens, positions=positions, block_tables=tables)
        return self._submit_behind(start, self.members, batch, ask, versions)

    def _follow_without_ending(self) -> PickedSteps | None:
        """Submit steps without the sequences that end in these; None if the others must wait."""
        context, lookahead = self.context, self.context.lookahead
        going = [(running, n_new) for running, n_new in self.members if self._is_left(running)]
        if not 1 < len(going) < len(self.members) or not self.may_pass_tokens():
            return None
        others = set(context.scheduler.running) - self.current()
        if others or context.scheduler.may_admit():
            return None
        most = min(context.drafting.n_free(self.members) - 1, 2 * self.n_steps)
        n_steps = lookahead.steps(going, self.n_steps, most) if most >= 1 else 0
        if not n_steps:
            return None
        start, whole = context.now(), [running for running, _ in going]
        places = [(item, item.n_past + self.n_steps, item.generation.adapter_scales) for item in whole]
        parts = [Part(item, [LATEST], position, [0], scales, from_slots=True) for item, position, scales in places]
        batch = batch_of(context.cache, parts)
        ask = lookahead.ask([running.generation for running in whole], n_steps, self.n_steps)
        return self._submit_behind(start, going, batch, ask, [running.tables.version for running in whole])

    def _submit_behind(
        self, start: float, members: Members, batch: Batch, ask: Ask, versions: Sequence[int]
    ) -> PickedSteps:
        """Submit steps of these sequences behind the present ones."""
        n_steps, whole = len(ask.numbers), [running for running, _ in members]
        pending = self.context.runner.submit(batch, ask)
        for running in whole:
            running.n_ahead = self.n_steps + n_steps
        self.context.speculation.passed(n_steps)
        return PickedSteps(self.context, start, members, whole, batch, pending, ask, versions=versions, behind=True)

    def _is_left(self, running: Running) -> bool:
        """Return True if a member is not known to end with these steps."""
        generation = running.generation
        is_current = running not in self.lost and not generation.finish_reason
        return is_current and generation.n_left > self.n_steps and running.n_past + self.n_steps < generation.n_ctx

    def _follow_with_prompts(self) -> PickedSteps | None:
        """Submit a step that reads prompts, beside tokens that the present step picks; None if it has to wait for them.

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
        return self._submit_any(members) if members and is_full else None

    def _submit_any(self, members: Members) -> PickedSteps | None:
        """Submit a step behind the present one; None if the program cannot decide all of its tokens."""
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
        for (running, _), first in zip(members, batch.seq_starts, strict=False):
            if running.n_coming:
                batch.tokens[first] = LATEST
        ask = context.lookahead.ask(generations, 1, [running.n_coming for running in whole]) if whole else None
        pending = context.runner.submit(batch, ask)
        context.speculation.passed(1)
        return PickedSteps(context, start, members, whole, batch, pending, ask, behind=True)

    # --- their tokens

    def take(self, following: Flight | None) -> None:
        """Continue with the tokens, and restrict the first pick of the steps that follow."""
        with self.restoring:
            lost = self._take_tokens()
        if following:
            following.lost |= lost
            following.restrict()
        if following is None:
            self.read_again()

    def _take_tokens(self) -> set[Running]:
        """Continue with the tokens; return the sequences that ended or changed, whose later tokens are discarded."""
        if self.ask is None:
            self.pending.outputs()
            self._begin_taking()
            return set()
        going: Going = list(enumerate(self.whole))
        n_right, n_done = dict.fromkeys(self.whole, 0), 0
        for ahead in self.pending.tokens():
            going = going if n_done else self._begin_taking()
            finite = np.isfinite(ahead.logits[:, :, 0]).tolist()
            for step in range(len(ahead.picked)):
                going = self._take_step(going, ahead, step, finite[step])
                for _, running in going:
                    n_right[running] += 1
            n_done += len(ahead.picked)
            if n_done == self.n_steps or not going:
                break
        for running in () if self.decided else self.whole:
            if not running.generation.finish_reason:
                running.generation.guessed(n_right[running], self.n_steps)
        return set(self.whole) - {running for _, running in going}

    def _begin_taking(self) -> Going:
        """Note that results arrived, and return the rows of sequences that go on; count the tokens of any batch."""
        context, current = self.context, self.current()
        context.note_result()
        if self.versions is None:
            for running in self.whole:
                running.n_coming = 0
            members = [(running, n_new) for running, n_new in self.members if running in current]
            if not self.is_advanced:
                context.advance(members)
            context.report(members)
        return [(row, running) for row, running in enumerate(self.whole) if running in current]

    def _take_step(self, going: Going, ahead: Ahead, step: int, finite: Sequence[bool]) -> Going:
        """Continue with the tokens of a step; return the rows of sequences for which the next one was computed."""
        scheduler, taken = self.context.scheduler, []
        for row, running in going:
            try:
                token = self.context.lookahead.token(running.generation, ahead, step, row, finite[row])
            except Exception as error:
                scheduler.fail([running], error)
                continue
            if token is None:
                running.undecided = True
                if self.versions is None:
                    scheduler.begin_again(running)
                continue
            if self.versions is not None:
                scheduler.computed(running, 1)
                running.n_ahead -= 1 if self.decided else 0
            taken.append((row, running, token))
        scheduler.take([(running, token) for _, running, token in taken], self.context.least_forced)
        picked = ahead.picked[step]
        return [(row, running) for row, running, token in taken if token == picked[row] and goes_on(running)]


def _ends_with_next(running: Running) -> bool:
    """Return True if a sequence ends with its next token, whatever that is, or its context is full."""
    generation = running.generation
    return generation.n_left <= 1 or len(generation.tokens) >= generation.n_ctx
