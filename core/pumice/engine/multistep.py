"""Multi-step decoding: a program picks tokens by itself and goes on; guesses are verified, decisions are followed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from pumice.backend import Program
from pumice.engine.batches import batch_of
from pumice.engine.flight import Flight, Flights, Landed
from pumice.engine.generation import Running
from pumice.engine.kv_cache import KVCache
from pumice.engine.lookahead import Lookahead
from pumice.engine.schedule import Members
from pumice.engine.scheduler import Scheduler
from pumice.engine.states import RecurrentStates
from pumice.pick import Ahead, Restriction
from pumice.step import Batch


class MultiStep:
    """Computes several steps of the same sequences in a submit, where their samplers allow it.

    ``flight``: steps on their way, of which the next tokens come.
    """

    def __init__(self, program: Program, scheduler: Scheduler, cache: KVCache, states: RecurrentStates) -> None:
        self.lookahead = Lookahead(program, cache)
        self.flight: Flight | None = None
        self._program = program
        self._scheduler = scheduler
        self._cache = cache
        self._states = states
        self._flights = Flights(program, self.lookahead, cache)

    def compute(self, members: Members) -> bool:
        """Take several steps of these. False: the logits of the next one must be seen."""
        if self.flight:
            self._land(self.flight)
            return True
        n_steps = self.lookahead.steps(members)
        if n_steps and self._flights.possible(members):
            self._land(self._flights.begin(members, n_steps))
        elif n_steps and self.lookahead.restricts([running.generation for running, _ in members]):
            return False  # ``pick`` does it
        elif n_steps:
            self._guess(members, n_steps)
        return n_steps > 0

    def pick(self, batch: Batch, whole: Sequence[Running]) -> Callable[[], None] | None:
        """Compute a step of any batch, where the program picks the next token of each sequence that is ``whole`` then.

        What it gives goes on with those tokens. None: all logits must be seen.
        """
        if not whole or not self.lookahead.decides(whole):
            return None
        restrictions = self._restrictions(whole)
        if restrictions is None:
            return None
        ask = self.lookahead.ask([running.generation for running in whole], 1)
        ahead = next(self._program.steps_ahead(batch, replace(ask, restrictions=restrictions)))
        return partial(self._take, whole, ahead) if np.isfinite(ahead.logits[0, :, 0]).all() else None

    def _take(self, whole: Sequence[Running], ahead: Ahead) -> None:
        tokens: list[tuple[Running, int]] = []
        for row, running in enumerate(whole):
            token = self.lookahead.token(running.generation, ahead, 0, row)
            assert token is not None
            tokens.append((running, token))
        self._scheduler.take(tokens, self._least_forced)

    @property
    def _least_forced(self) -> int:
        """Tokens that a mask must force to be read like a prompt, which would end the flights of all."""
        flies = self._program.follows and self._cache.checkpoints is None
        return 3 + len(self._scheduler.running) if flies else 1

    def settle(self) -> None:
        """Let steps that are on their way come to their end."""
        flight, self.flight = self.flight, None
        if flight:
            self._take_picked(self._flights.land(flight), flight.n_steps)
            self._begin_again(flight.members)
            self._scheduler.retire()

    def _restrictions(self, running: Sequence[Running]) -> Sequence[Restriction] | None:
        """Of each one's next token, if there are any; None where the program cannot do what one says."""
        if not self.lookahead.restricts([each.generation for each in running]):
            return ()
        found = [self.lookahead.restriction(each) for each in running]
        return None if any(each.undecided for each in running) else found

    # --- what the program decides

    def _land(self, flight: Flight) -> None:
        """Go on with the tokens of steps on their way, when the next ones are on theirs."""
        self.flight = None
        n_steps = self._n_following(flight)
        following = self._flights.begin(flight.members, n_steps, flight) if n_steps else None
        lost = self._take_picked(self._flights.land(flight), flight.n_steps)
        if following:
            following.lost |= lost
            self._flights.choose(following)
        else:
            self._begin_again(flight.members)
        self.flight = following

    def _begin_again(self, members: Members) -> None:
        """Read those again whose recurrent states have seen what is none of their tokens."""
        for running, _ in members:
            if running.n_ahead and not running.generation.finish_reason and self._cache.checkpoints is not None:
                self._scheduler.begin_again(running)

    def _n_following(self, flight: Flight) -> int:
        """How many steps to begin behind a flight: none where others wait to be let in, or some are out of it."""
        current = [running for running, _ in flight.members if not running.generation.finish_reason]
        if flight.lost or len(current) != len(flight.members) or len(current) != len(self._scheduler.running):
            return 0
        return 0 if self._scheduler.may_admit() else self.lookahead.steps(flight.members, flight.n_steps)

    def _take_picked(self, landed: Sequence[Landed], n_steps: int) -> set[Running]:
        """Go on with the tokens picked. Those whose steps were not all of use, so that the next ones are not."""
        going = [each for each in landed if not each.running.generation.finish_reason]
        for each in going:
            each.running.undecided = each.n_good < n_steps
        for step in range(n_steps):
            tokens = [(each.running, self._picked(each, step)) for each in going if step < each.n_good]
            self._scheduler.take(tokens, self._least_forced)
            going = [each for each in going if step < each.n_good and _goes_on(each.running)]
        return {each.running for each in landed} - {each.running for each in going}

    def _picked(self, landed: Landed, step: int) -> int:
        """The token of a step that was computed."""
        running, ahead, row, _ = landed
        generation = running.generation
        generation.chain.skip(self.lookahead.draws(generation))
        self._scheduler.computed(running, 1)
        running.n_ahead -= 1
        return self.lookahead.picked(generation, ahead, step, row)

    # --- what the program guesses

    def _guess(self, members: Members, n_steps: int) -> None:
        """The program guesses the tokens; a sequence's chain ends its steps at a wrong guess.

        What was computed beyond lies in the cache where the right tokens will; recurrent states are taken back.
        """
        generations = [running.generation for running, _ in members]
        n_right = [0] * len(members)
        guessed = list(enumerate(running for running, _ in members))  # whose guesses were right so far
        seconds, n_computed = 0.0, 0
        with self._states.taking_back([running for running, _ in members], n_steps):
            ask = self.lookahead.ask(generations, n_steps)
            batch = batch_of(self._cache, [running.part(n_new) for running, n_new in members])
            parts = self._program.steps_ahead(batch, ask)
            while guessed and n_computed < n_steps:
                started = time.perf_counter()
                ahead = next(parts)
                seconds += time.perf_counter() - started
                n_computed += len(ahead.picked)
                for row, running in guessed:
                    n_right[row] += self._take_guesses(running, ahead, row)
                guessed = [(row, running) for row, running in guessed if n_right[row] == n_computed]
        self.lookahead.took(len(members), n_computed, seconds)
        for generation, n in zip(generations, n_right, strict=True):
            if not generation.finish_reason:
                generation.guessed(n, n_steps)

    def _take_guesses(self, running: Running, ahead: Ahead, row: int) -> int:
        """Go on with the tokens of steps until a guess was wrong; how many were right."""
        n_steps = len(ahead.picked)
        return next((step for step in range(n_steps) if not self._take_guess(running, ahead, step, row)), n_steps)

    def _take_guess(self, running: Running, ahead: Ahead, step: int, row: int) -> bool:
        """Go on with the token of a step. Whether it is the one that the next step was computed for."""
        token = self.lookahead.token(running.generation, ahead, step, row)
        if token is None:
            running.undecided = True
            return False
        self._scheduler.computed(running, 1)
        self._scheduler.take([(running, token)])
        return token == ahead.picked[step, row] and _goes_on(running)


def _goes_on(running: Running) -> bool:
    """Whether it has its last token, and nothing else, to compute."""
    return running.pending == 1 and not running.generation.finish_reason
