"""Several consecutive steps whose tokens the program guesses, and the chain of each sequence verifies."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Self

from pumice.backend.pick import Ahead
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.loop.steps.flight import Flight, goes_on
from pumice.engine.requests.batches import batch_of
from pumice.engine.requests.generation import Members, Running


@dataclass(eq=False, kw_only=True)
class GuessedSteps(Flight):
    """Steps with guesses: a sequence's chain ends its steps at a wrong one.

    Later tokens overwrite cache entries computed beyond a wrong guess; recurrent states are restored.

    Attributes:
        open: restores recurrent states after a wrong guess.
    """

    open: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def submit(cls, context: StepContext, members: Members, n_steps: int) -> Self:
        """Submit ``n_steps`` steps of generating sequences."""
        whole = [running for running, _ in members]
        with ExitStack() as stack:
            stack.enter_context(context.states.taking_back([(running, n_steps) for running in whole]))
            ask = context.lookahead.ask([running.generation for running in whole], n_steps)
            batch = batch_of(context.cache, [running.part(n_new) for running, n_new in members])
            start = context.now()
            pending = context.runner.submit(batch, ask)
            context.speculation.passed(n_steps - 1)
            submitted = context, start, members, whole, batch, pending, ask
            return cls(*submitted, open=stack.pop_all())

    def take(self, following: Flight | None) -> None:
        """Continue with the guesses up to the first wrong one."""
        members, n_steps = self.members, self.n_steps
        n_right = [0] * len(members)
        guessed = list(enumerate(running for running, _ in members))  # sequences with only right guesses so far
        n_computed = 0
        with self.open:
            parts = self.pending.tokens()
            while guessed and n_computed < n_steps:
                ahead = next(parts)
                n_computed += len(ahead.picked)
                for row, running in guessed:
                    n_right[row] += self._take_guesses(running, ahead, row)
                guessed = [(row, running) for row, running in guessed if n_right[row] == n_computed]
        for (running, _), n in zip(members, n_right, strict=True):
            if not running.generation.finish_reason:
                running.generation.guessed(n, n_steps)

    def _take_guesses(self, running: Running, ahead: Ahead, row: int) -> int:
        """Continue with the tokens of steps until a guess is wrong; return the number of right guesses."""
        n_steps = len(ahead.picked)
        return next((step for step in range(n_steps) if not self._take_guess(running, ahead, step, row)), n_steps)

    def _take_guess(self, running: Running, ahead: Ahead, step: int, row: int) -> bool:
        """Continue with the token of a step. Return True if the next step was computed for it."""
        token = self.context.lookahead.token(running.generation, ahead, step, row)
        if token is None:
            running.undecided = True
            return False
        self.context.scheduler.computed(running, 1)
        self.context.scheduler.take([(running, token)])
        return token == ahead.picked[step, row] and goes_on(running)
