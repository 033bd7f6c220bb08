"""Multi-step decoding: how many steps a program may take by itself, by what sequences allow and how fast it was."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pumice.backend import Program
from pumice.engine.generation import Running
from pumice.engine.kv_cache import KVCache
from pumice.sampler import Chain

SECONDS = 0.02
"""That the steps may take: tokens still come evenly, and nobody takes the device for hung."""


class Lookahead:
    """For a program that generates by itself (``Program.run_ahead``)."""

    def __init__(self, program: Program, cache: KVCache) -> None:
        self._program = program
        self._cache = cache
        self._seconds: dict[int, float] = {}  # number of sequences -> seconds of one of their steps
        self._prepared: set[tuple[int, int]] = set()

    def steps(self, members: Sequence[tuple[Running, int]]) -> int:
        """How many for this batch: a power of two, with blocks held for all of them. 0: its logits must be seen."""
        running = [member for member, _ in members]
        generations = [member.generation for member in running]
        if not all(member.pending == 1 and self._guesses(member) for member in running):
            return 0
        if self._cache.checkpoints is not None and self._cache.checkpoints.available < len(running):
            return 0  # wrong guesses could not be taken back
        useful = 2 * sum(generation.n_right for generation in generations) / len(generations)
        useful = min(useful, max(generation.n_left for generation in generations))
        if not all(generation.generated for generation in generations):
            useful = 1  # a first token is waited for
        room = min(member.generation.n_ctx - member.n_past for member in running)
        seconds = self._seconds.get(len(running), math.inf)
        n = 1
        while 2 * n <= min(useful, room, self._program.max_steps) and 2 * n * seconds <= SECONDS:
            n *= 2
        while n > 1 and not self._blocks_suffice(running, n):
            n //= 2
        for member in running:
            self._cache.extend(member.tables, member.n_past, n)
        return n

    def took(self, n_seqs: int, n_steps: int, seconds: float) -> None:
        """Note a time; not the first of its kind, in which the program may have prepared what it needs."""
        if (n_seqs, n_steps) in self._prepared:
            self._seconds[n_seqs] = seconds / n_steps
        self._prepared.add((n_seqs, n_steps))

    def n_best(self, chains: Sequence[Chain]) -> int:
        """How many of the highest logits to ask for: a chain that lowers some may need more than it keeps."""
        most = min(self._program.max_best, chains[0].n_vocab)
        return most if any(chain.lowers for chain in chains) else max(chain.n_best or 0 for chain in chains)

    def _guesses(self, running: Running) -> bool:
        chain = running.generation.chain
        if running.undecided or running.generation.wants_raw or chain.pick is None or chain.n_best is None:
            return False
        return chain.n_best <= self._program.max_best

    def _blocks_suffice(self, running: Sequence[Running], n_steps: int) -> bool:
        """Without taking any from sequences that wait."""
        missing = [self._cache.missing(member.tables, member.n_past, n_steps) for member in running]
        return sum(missing) <= self._cache.available
