"""A step after which the program verifies drafts that it did not make, so that the step needs no logits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pumice.architecture import MAIN
from pumice.backend.pick import Ahead
from pumice.backend.step import PassedTokens
from pumice.engine.drafts.device_drafts import DraftPlan
from pumice.engine.drafts.drafts import Draft
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.loop.steps.flight import Flight, n_equal
from pumice.engine.loop.steps.verified_rows import ask_rows, take_rows
from pumice.engine.requests.batches import batch_of
from pumice.engine.requests.generation import Members, Running
from pumice.engine.requests.grammar_rows import restricted


def n_verified(context: StepContext, members: Members, drafts: Mapping[Running, Draft]) -> int:
    """Return how many tokens of each sequence the program verifies for the host; 0: the host verifies them.

    Drafts are padded to a number that the program offers.
    """
    lookahead = context.lookahead
    if not lookahead.verifies(members):
        return 0
    longest = max(len(draft.tokens) for draft in drafts.values())
    n_drafted = next((n for n in lookahead.lengths(len(members)) if n >= longest), 0)
    if not n_drafted or not lookahead.passes([running for running, _ in members], n_drafted, 1):
        return 0
    context.drafting.prepare()
    return n_drafted


@dataclass(eq=False, kw_only=True)
class ProgramVerifiedStep(Flight):
    """A step with exact picks that verifies drafts of the host."""

    @classmethod
    def submit(
        cls, context: StepContext, members: Members, drafts: Mapping[Running, Draft], n_drafted: int
    ) -> ProgramVerifiedStep:
        """Submit a step that verifies drafts of at most ``n_drafted`` tokens."""
        tokens = [list(drafts[running].tokens) if running in drafts else [] for running, _ in members]
        flight = cls.submit_rows(context, members, tokens, n_drafted)
        flight.drafts = drafts
        return flight

    @classmethod
    def submit_rows(
        cls,
        context: StepContext,
        members: Members,
        tokens: Sequence[Sequence[int]],
        n_drafted: int,
        passed: Sequence[PassedTokens] = (),
        before: Flight | None = None,
    ) -> Self:
        """Submit a step with ``n_drafted`` rows of each sequence behind its last token.

        Drafts are padded; those that pending steps pick are ``passed``. ``before``: a step of the kind that it follows.
        """
        start, sequences = context.now(), [running for running, _ in members]
        ask, parts = ask_rows(context.lookahead, sequences, DraftPlan(n_drafted, 2 if before else 1), bool(before)), []
        if any(pick.restricted for pick in ask.picks):
            generations = [running.generation for running in sequences]
            tokens, ask = restricted(ask, generations, tokens, context.can.max_added)
        for running, drafted in zip(sequences, tokens, strict=True):
            padding = [running.generation.tokens[-1]] * (n_drafted - len(drafted))
            parts.append(running.part(1, [*drafted, *padding]))
        batch = batch_of(context.cache, parts)
        batch.passed_tokens = passed
        graph = context.listening(members, batch) or MAIN
        if passed and (layer := context.speculation.next_tokens):
            batch.bases = layer.bases(sequences)
            graph = context.runner.model.listening or MAIN  # steps behind each other are of one graph
        pending = context.runner.submit(batch, ask, before.pending if before else None, graph)
        for running in sequences:
            running.n_ahead += 1
        submitted = context, start, members, sequences, batch, pending, ask
        return cls(*submitted, behind=before is not None, hears=graph != MAIN)

    def take(self, following: Flight | None) -> None:
        """Continue with the right tokens of the drafts, and the token behind them."""
        for _, (running, _, n_accepted) in self.take_verified(next(self.pending.tokens())):
            if (draft := self.drafts.get(running)) and n_accepted > 0:
                coming = running.generation.generated[-1 - n_accepted :]
                draft.n_accepted = min(n_accepted, n_equal(draft.tokens, coming))
        self.read_again()

    def take_verified(self, ahead: Ahead) -> Iterator[tuple[int, tuple[Running, int, int]]]:
        """Continue with the tokens of the step, except of sequences that were lost or have ended.

        Yield the index of each sequence, and it with the number of tokens that the program picked for it and that of
        accepted drafted tokens.
        """
        assert self.ask is not None
        assert ahead.n_taken is not None
        n_rows = 1 + self.ask.n_drafted
        for index, (running, n_taken) in enumerate(zip(self.whole, ahead.n_taken[0].tolist(), strict=True)):
            if running in self.lost or running.generation.finish_reason:
                continue
            n_before = len(running.generation.generated)
            running.n_ahead += n_taken - 1
            drafted = self.batch.tokens[index * n_rows + 1 :][: n_rows - 1]
            take_rows(self.context, running, ahead, 0, range(index * n_rows, index * n_rows + n_taken), drafted)
            yield index, (running, n_taken, len(running.generation.generated) - n_before - 1)
