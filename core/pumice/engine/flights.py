"""Steps on their way: the engine begins as many as there is use for, and goes on with the tokens of the first of them.

The next tokens are those that the samplers choose of a step's logits, or those that the program picked: guesses are
verified by the samplers, and decisions are followed by the next steps before anybody has looked at them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.engine import logprobs
from pumice.engine.batches import Part, batch_of
from pumice.engine.generation import Running
from pumice.engine.kv_cache import KVCache
from pumice.engine.lookahead import Lookahead
from pumice.engine.messages import Event
from pumice.engine.runner import Runner
from pumice.engine.schedule import Members
from pumice.engine.scheduler import Scheduler
from pumice.engine.states import RecurrentStates
from pumice.pick import Ahead, Ask, Restriction
from pumice.step import Batch, Pending


@dataclass(eq=False, slots=True)
class Flight:
    """A step of some sequences that is being computed, or several in a row, a token of each at a time.

    Attributes:
        whole: the members whose next token it gives.
        land: goes on with what it gives, once it is there.
        ask: how the program picks; None: the host chooses of the logits.
        n_changes: of each sequence's blocks until it began, where steps may follow.
        lost: sequences whose tokens are of no use any more.
        behind: it was begun behind another one.
        open: to be closed when its tokens were looked at.
    """

    members: Members
    whole: Sequence[Running]
    batch: Batch
    pending: Pending
    land: Callable[[Flight], None]
    ask: Ask | None = None
    n_changes: Sequence[int] = ()
    lost: set[Running] = field(default_factory=set)
    behind: bool = False
    goes_on: bool = True
    open: ExitStack | None = None
    began: float = field(default_factory=time.perf_counter)

    @property
    def n_steps(self) -> int:
        return len(self.ask.numbers) if self.ask else 1


class Landed(NamedTuple):
    """A sequence's tokens: ``n_good`` steps of a row."""

    running: Running
    ahead: Ahead
    row: int
    n_good: int


class Flights:
    """Begins steps, and lands them in the order in which they were begun. ``tell`` takes events."""

    def __init__(
        self,
        runner: Runner,
        lookahead: Lookahead,
        scheduler: Scheduler,
        cache: KVCache,
        states: RecurrentStates,
        tell: Callable[[Event], None],
    ) -> None:
        self.on_way: deque[Flight] = deque()
        self.lookahead = lookahead
        self._runner = runner
        self._can = lookahead.can
        self._scheduler = scheduler
        self._cache = cache
        self._states = states
        self._tell = tell
        self._landed = 0.0

    def choose(self) -> Members:
        """Who is in the next step: nobody where enough are on their way. Several share the sequences."""
        if len(self.on_way) >= self._can.n_in_flight:
            return []
        if self._can.n_in_flight == 1:
            return self._scheduler.choose()
        busy = [running for flight in self.on_way for running, _ in flight.members]
        n_waiting = len([each for each in self._scheduler.waiting if each.ready])
        n_all = min(len(self._scheduler.running) + n_waiting, self._scheduler.limits.n_seqs)
        return self._scheduler.choose(busy, -(-n_all // self._can.n_in_flight))

    def begin(self, members: Members) -> Flight:
        """Submit a step, or as many in a row as the program may take by itself."""
        flight = self._begin(members)
        self.on_way.append(flight)
        return flight

    def land(self, flight: Flight, goes_on: bool = True) -> float:
        """Wait for a flight, and go on with its tokens; others may follow if it ``goes_on``. Returns the seconds."""
        self.on_way.remove(flight)
        began = max(flight.began, self._landed) if flight.behind else flight.began
        flight.goes_on = goes_on
        flight.land(flight)
        return time.perf_counter() - began

    def _begin(self, members: Members) -> Flight:
        n_steps = self.lookahead.steps(members) if self._can.max_steps else 0
        if n_steps and self._decided(members):
            return self._fly(members, n_steps)
        if n_steps and not self.lookahead.restricts([running.generation for running, _ in members]):
            return self._guess(members, n_steps)
        batch = batch_of(self._cache, [running.part(n_new) for running, n_new in members])
        whole = [running for running, n_new in members if running.pending == n_new]
        ask = self._ask(batch, whole) if self._can.max_steps else None
        pending = self._runner.submit(batch, ask)
        for running, _ in members if self._can.n_in_flight > 1 else ():
            running.n_ahead = 1
        return Flight(members, whole, batch, pending, self._take if ask else self._sample, ask)

    def _computed(self, members: Members) -> None:
        for running, n_new in members:
            self._scheduler.computed(running, n_new)
            if running.reading:
                self._tell(running.progress())
        self._states.keep([running for running, _ in members if running.at_mark])

    # --- the host chooses

    def _sample(self, flight: Flight) -> None:
        """Go on with the token that each sequence's chain chooses of its row of logits."""
        if self._can.n_in_flight == 1:
            logits = flight.pending.outputs()["logits"]
            self._computed(flight.members)
            self._choose(flight.whole, logits)
            return
        try:
            logits = flight.pending.outputs()["logits"]
        finally:
            for running, _ in flight.members:
                running.n_ahead = 0
        current = set(self._scheduler.running)  # the others have ended since it began
        rows = [row for row, running in enumerate(flight.whole) if running in current]
        self._computed([(running, n_new) for running, n_new in flight.members if running in current])
        self._choose([flight.whole[row] for row in rows], logits[rows])

    def _choose(self, whole: Sequence[Running], logits: NDArray[np.float32]) -> None:
        totals = logprobs.totals(logits, [running.generation.wants_raw for running in whole])
        tokens: list[tuple[Running, int]] = []
        for running, row, total in zip(whole, logits, totals, strict=True):
            token = running.generation.sample(row, total=total)
            assert token is not None
            tokens.append((running, token))
        self._scheduler.take(tokens)

    # --- the program decides one token, of any batch

    def _ask(self, batch: Batch, whole: Sequence[Running]) -> Ask | None:
        """What has the program pick the next token of each sequence that is whole; None: all logits must be seen."""
        if not whole or not self._runner.picks(batch) or not self.lookahead.decides(whole):
            return None
        ask = self.lookahead.ask([running.generation for running in whole], 1)
        if not self.lookahead.restricts([running.generation for running in whole]):
            return ask
        restrictions = [self.lookahead.restriction(running) for running in whole]
        return None if any(running.undecided for running in whole) else replace(ask, restrictions=restrictions)

    def _take(self, flight: Flight) -> None:
        """Go on with the tokens picked; where a logit is not finite, with those that the host chooses."""
        ahead = next(flight.pending.tokens())
        if not np.isfinite(ahead.logits[0, :, 0]).all():
            logits = self._runner.run(flight.batch)
            self._computed(flight.members)
            self._choose(flight.whole, logits)
            return
        self._computed(flight.members)
        tokens: list[tuple[Running, int]] = []
        for row, running in enumerate(flight.whole):
            token = self.lookahead.token(running.generation, ahead, 0, row)
            assert token is not None
            tokens.append((running, token))
        self._scheduler.take(tokens, self._least_forced)

    @property
    def _least_forced(self) -> int:
        """Tokens that a mask must force to be read like a prompt, which would end the flights of all."""
        flies = self._can.follows and self._cache.checkpoints is None
        return 3 + len(self._scheduler.running) if flies else 1

    # --- the program guesses several

    def _guess(self, members: Members, n_steps: int) -> Flight:
        """Have the program guess tokens; a sequence's chain ends its steps at a wrong guess.

        What was computed beyond lies in the cache where the right tokens will; recurrent states are taken back.
        """
        whole = [running for running, _ in members]
        with ExitStack() as stack:
            stack.enter_context(self._states.taking_back(whole, n_steps))
            ask = self.lookahead.ask([running.generation for running in whole], n_steps)
            batch = batch_of(self._cache, [running.part(n_new) for running, n_new in members])
            began = time.perf_counter()
            pending = self._runner.submit(batch, ask)
            return Flight(members, whole, batch, pending, self._verify, ask, open=stack.pop_all(), began=began)

    def _verify(self, flight: Flight) -> None:
        """Go on with guesses, as far as they are right."""
        members, n_steps = flight.members, flight.n_steps
        n_right = [0] * len(members)
        guessed = list(enumerate(running for running, _ in members))  # whose guesses were right so far
        seconds, n_computed, started = 0.0, 0, flight.began
        with flight.open or nullcontext():
            parts = flight.pending.tokens()
            while guessed and n_computed < n_steps:
                ahead = next(parts)
                seconds += time.perf_counter() - started
                n_computed += len(ahead.picked)
                for row, running in guessed:
                    n_right[row] += self._take_guesses(running, ahead, row)
                guessed = [(row, running) for row, running in guessed if n_right[row] == n_computed]
                started = time.perf_counter()
        self.lookahead.took(len(members), n_computed, seconds)
        for (running, _), n in zip(members, n_right, strict=True):
            if not running.generation.finish_reason:
                running.generation.guessed(n, n_steps)

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

    # --- the program decides, and others follow

    def _decided(self, members: Members) -> bool:
        """Whether nothing has to be taken back, whatever comes."""
        if not self._can.follows:
            return False
        if self._cache.checkpoints is not None and self.lookahead.restricts([each.generation for each, _ in members]):
            return False  # tokens that a mask forces would be behind others in a recurrent state
        return all(running.memory is None and self.lookahead.trusts(running.generation) for running, _ in members)

    def _fly(self, members: Members, n_steps: int, before: Flight | None = None) -> Flight:
        """Submit steps of which every token is decided, perhaps behind others of the same sequences."""
        began = time.perf_counter()
        n_ahead = before.n_steps if before else 0
        generations = [running.generation for running, _ in members]
        ask = self.lookahead.ask(generations, n_steps, n_ahead, before.ask if before else None)
        for each, _ in members:
            each.n_ahead = n_ahead + n_steps
        n_changes = [each.tables.n_changes for each, _ in members]
        batch = self._batch_behind(before, n_changes) if before else self._batch(members)
        pending = self._runner.submit(batch, ask, before.pending if before else None)
        flight = Flight(members, [running for running, _ in members], batch, pending, self._follow, ask, n_changes)
        flight.began, flight.behind = began, before is not None
        if not before:
            with self._discarding(flight):
                self._restrict(flight)
        return flight

    def _batch(self, members: Members) -> Batch:
        """The last token of each."""
        return batch_of(
            self._cache,
            [
                Part(each, each.generation.tokens[-1:], each.n_past, [0], each.generation.adapter_scales)
                for each, _ in members
            ],
        )

    def _batch_behind(self, before: Flight, n_changes: Sequence[int]) -> Batch:
        """The steps behind others of the same sequences; arrays that stay as they were need not be written again."""
        batch = before.batch
        tables = batch.block_tables
        if n_changes != before.n_changes:
            tables = self._cache.batch_tables([running.tables for running, _ in before.members])
        return replace(batch, positions=batch.positions + before.n_steps, block_tables=tables)

    def _restrict(self, flight: Flight) -> None:
        """Have the tokens picked of a flight that waits for their restrictions: all tokens before are known now."""
        assert flight.ask is not None
        if any(pick.restricted for pick in flight.ask.picks):
            restrictions = [
                Restriction() if running in flight.lost else self.lookahead.restriction(running)
                for running, _ in flight.members
            ]
            flight.pending.restrict(restrictions)
            flight.lost |= {running for running, _ in flight.members if running.undecided}

    @contextmanager
    def _discarding(self, flight: Flight | None) -> Iterator[None]:
        """Where an error comes first, wait for steps that were submitted: their sequences' memory will be others'."""
        try:
            yield
        except Exception:
            if flight:
                flight.lost = {running for running, _ in flight.members}
                with suppress(Exception):  # the first error says why
                    self._restrict(flight)
                    next(flight.pending.tokens())
            raise

    def _follow(self, flight: Flight) -> None:
        """Go on with the tokens of steps on their way, when the next ones are on theirs."""
        n_steps = self._n_following(flight) if flight.goes_on else 0
        following = self._fly(flight.members, n_steps, flight) if n_steps else None
        with self._discarding(following):
            lost = self._take_picked(self._wait(flight), flight.n_steps)
            if following:
                following.lost |= lost
                self._restrict(following)
        if following:
            self.on_way.append(following)
            return
        for running, _ in flight.members:  # read those again whose recurrent states saw what is none of their tokens
            if running.n_ahead and not running.generation.finish_reason and self._cache.checkpoints is not None:
                self._scheduler.begin_again(running)

    def _n_following(self, flight: Flight) -> int:
        """How many steps to begin behind a flight: none where others wait to be let in, or some are out of it."""
        current = [running for running, _ in flight.members if not running.generation.finish_reason]
        if flight.lost or len(current) != len(flight.members) or len(current) != len(self._scheduler.running):
            return 0
        return 0 if self._scheduler.may_admit() else self.lookahead.steps(flight.members, flight.n_steps)

    def _wait(self, flight: Flight) -> list[Landed]:
        """What was picked for each sequence. Ends with the first token that has no finite logit before it."""
        ahead = next(flight.pending.tokens())
        now = time.perf_counter()
        self.lookahead.took(len(flight.members), flight.n_steps, now - max(flight.began, self._landed))
        self._landed = now
        finite = np.isfinite(ahead.logits[:, :, 0])
        n_good = np.where(finite.all(axis=0), flight.n_steps, finite.argmin(axis=0)).tolist()
        rows = enumerate(zip(flight.members, n_good, strict=True))
        return [Landed(running, ahead, row, n) for row, ((running, _), n) in rows if running not in flight.lost]

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


def _goes_on(running: Running) -> bool:
    """Whether it has its last token, and nothing else, to compute."""
    return running.pending == 1 and not running.generation.finish_reason
