"""Steps on their way: a program takes them by itself, while the host looks at the tokens of those before."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from pumice.backend import Program
from pumice.engine.batches import Part, batch_of
from pumice.engine.generation import Running
from pumice.engine.kv_cache import KVCache
from pumice.engine.lookahead import Lookahead
from pumice.engine.schedule import Members
from pumice.pick import Ahead, Ask, Restriction
from pumice.step import Batch


@dataclass(eq=False)
class Flight:
    """Steps of some sequences, a token of each at a time. ``lost``: those whose tokens are of no use any more.

    ``choose``: takes the restrictions of a step's tokens, and submits that they are picked. ``n_changes``: of each
    sequence's blocks until then.
    """

    members: Members
    n_steps: int
    batch: Batch
    ask: Ask
    n_changes: Sequence[int]
    began: float = field(default_factory=time.perf_counter)
    result: Callable[[], Ahead] | None = None
    choose: Callable[[Sequence[Restriction]], Callable[[], Ahead]] | None = None
    lost: set[Running] = field(default_factory=set)

    def landed(self) -> list[Landed]:
        """What was picked for each sequence. Ends with the first token that has no finite logit before it."""
        assert self.result is not None
        ahead = self.result()
        finite = np.isfinite(ahead.logits[:, :, 0])
        n_good = np.where(finite.all(axis=0), self.n_steps, finite.argmin(axis=0)).tolist()
        rows = enumerate(zip(self.members, n_good, strict=True))
        return [Landed(running, ahead, row, n) for row, ((running, _), n) in rows if running not in self.lost]


class Landed(NamedTuple):
    """A sequence's tokens: ``n_good`` steps of a row."""

    running: Running
    ahead: Ahead
    row: int
    n_good: int


class Flights:
    """Submits steps one behind the other, of sequences whose tokens a program picks (``Program.submit_ahead``)."""

    def __init__(self, program: Program, lookahead: Lookahead, cache: KVCache) -> None:
        self._program = program
        self._lookahead = lookahead
        self._cache = cache
        self._landed = 0.0

    def possible(self, members: Members) -> bool:
        """Whether nothing has to be taken back, whatever comes."""
        if not self._program.follows:
            return False
        if self._cache.checkpoints is not None and self._lookahead.restricts([each.generation for each, _ in members]):
            return False  # tokens that a mask forces would be behind others in a recurrent state
        return all(running.memory is None and self._lookahead.trusts(running.generation) for running, _ in members)

    def begin(self, members: Members, n_steps: int, before: Flight | None = None) -> Flight:
        """Submit steps, perhaps behind others of the same sequences."""
        n_ahead = before.n_steps if before else 0
        generations = [running.generation for running, _ in members]
        ask = self._lookahead.ask(generations, n_steps, n_ahead, before.ask if before else None)
        for each, _ in members:
            each.n_ahead = n_ahead + n_steps
        n_changes = [each.tables.n_changes for each, _ in members]
        batch = self._batch_behind(before, n_changes) if before else self._batch(members)
        flight = Flight(members, n_steps, batch, ask, n_changes)
        if not any(pick.restricted for pick in ask.picks):
            flight.result = self._program.submit_ahead(batch, ask, before is not None)
            return flight
        flight.choose = self._program.submit_layers(batch, ask, before is not None)
        if not before:
            self.choose(flight)
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

    def choose(self, flight: Flight) -> None:
        """Have the tokens picked of a flight that waits for their restrictions: all tokens before are known now."""
        if flight.choose:
            restrictions = [
                Restriction() if running in flight.lost else self._lookahead.restriction(running)
                for running, _ in flight.members
            ]
            flight.result = flight.choose(restrictions)
            flight.lost |= {running for running, _ in flight.members if running.undecided}

    def land(self, flight: Flight) -> list[Landed]:
        """Wait for a flight, and give its tokens."""
        found = flight.landed()
        now = time.perf_counter()
        self._lookahead.took(len(flight.members), flight.n_steps, now - max(flight.began, self._landed))
        self._landed = now
        return found
