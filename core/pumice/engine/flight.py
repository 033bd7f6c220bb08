"""Steps on their way: a program takes them by itself, while the host looks at the tokens of those before."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pumice.backend import Ahead, Program
from pumice.engine.batches import Part, batch_of
from pumice.engine.generation import Running
from pumice.engine.kv_cache import KVCache
from pumice.engine.lookahead import Lookahead
from pumice.engine.schedule import Members


@dataclass(eq=False)
class Flight:
    """Steps of some sequences, a token of each at a time. ``lost``: those whose tokens are of no use any more."""

    members: Members
    n_steps: int
    result: Callable[[], Ahead]
    began: float
    lost: set[Running] = field(default_factory=set)

    def tokens(self) -> list[tuple[Running, list[int]]]:
        """The tokens that were picked for each sequence. Ends with the first that has no finite logit before it."""
        ahead = self.result()
        finite = np.isfinite(ahead.logits[:, :, 0])
        n_good = np.where(finite.all(axis=0), self.n_steps, finite.argmin(axis=0)).tolist()
        picked = ahead.picked.T.tolist()
        found = zip(self.members, picked, n_good, strict=True)
        return [(running, tokens[:n]) for (running, _), tokens, n in found if running not in self.lost]


class Flights:
    """Submits steps one behind the other, of sequences whose tokens a program picks (``Program.submit_ahead``)."""

    def __init__(self, program: Program, lookahead: Lookahead, cache: KVCache) -> None:
        self._program = program
        self._lookahead = lookahead
        self._cache = cache
        self._landed = 0.0

    def possible(self, members: Members) -> bool:
        """Whether nothing has to be taken back, whatever comes."""
        if not self._program.follows or self._cache.checkpoints is not None:
            return False
        return all(running.memory is None and self._lookahead.trusts(running.generation) for running, _ in members)

    def begin(self, members: Members, n_steps: int, before: Flight | None = None) -> Flight:
        """Submit steps, perhaps behind others of the same sequences."""
        n_ahead = before.n_steps if before else 0
        asked = self._lookahead.ask([running.generation for running, _ in members], n_steps, n_ahead)
        parts = [Part(each, each.generation.tokens[-1:], each.n_past + n_ahead, [0]) for each, _ in members]
        began = time.perf_counter()
        result = self._program.submit_ahead(batch_of(self._cache, parts), *asked, follows=before is not None)
        return Flight(members, n_steps, result, began)

    def land(self, flight: Flight) -> list[tuple[Running, list[int]]]:
        """Wait for a flight, and give its tokens."""
        tokens = flight.tokens()
        now = time.perf_counter()
        self._lookahead.took(len(flight.members), flight.n_steps, now - max(flight.began, self._landed))
        self._landed = now
        return tokens
