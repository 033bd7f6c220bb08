"""How many steps in a row a program may take by itself: what the sequences allow, and how fast it was."""

from __future__ import annotations

import math
from collections.abc import Sequence as Sequences

from pumice.backend import Program
from pumice.engine.kv_cache import KVCache
from pumice.engine.sequence import Sequence

SECONDS = 0.02
"""That the steps may take: tokens still come evenly, and nobody takes the device for hung."""


class Lookahead:
    """For a program that generates by itself (``Program.run_ahead``)."""

    def __init__(self, program: Program, cache: KVCache, n_ctx: int) -> None:
        self._program = program
        self._cache = cache
        self._n_ctx = n_ctx
        self._seconds = math.inf  # of a step
        self._prepared: set[tuple[int, int]] = set()

    def steps(self, members: Sequences[tuple[Sequence, int]]) -> int:
        """How many for this batch: a power of two, with blocks held for all of them. 0: its logits must be seen."""
        sequences = [sequence for sequence, _ in members]
        if not all(sequence.pending == 1 and self._guesses(sequence) for sequence in sequences):
            return 0
        useful = max(sequence.request.max_tokens - len(sequence.generated) for sequence in sequences)
        if not all(sequence.generated for sequence in sequences):
            useful = 1  # a first token is waited for
        room = min(self._n_ctx - sequence.n_past for sequence in sequences)
        n = 1
        while 2 * n <= min(useful, room, self._program.max_steps) and 2 * n * self._seconds <= SECONDS:
            n *= 2
        while n > 1 and not self._blocks_suffice(sequences, n):
            n //= 2
        for sequence in sequences:
            assert sequence.tables is not None
            self._cache.extend(sequence.tables, sequence.n_past, n)
        return n

    def took(self, n_seqs: int, n_steps: int, seconds: float) -> None:
        """Note a time; not the first of its kind, in which the program may have prepared what it needs."""
        if (n_seqs, n_steps) in self._prepared:
            self._seconds = seconds / n_steps
        self._prepared.add((n_seqs, n_steps))

    def _guesses(self, sequence: Sequence) -> bool:
        chain = sequence.request.chain
        return chain.pick is not None and chain.n_best is not None and chain.n_best <= self._program.max_best

    def _blocks_suffice(self, sequences: Sequences[Sequence], n_steps: int) -> bool:
        """Without taking any from sequences that wait."""
        missing = [self._cache.missing(s.tables, s.n_past, n_steps) for s in sequences if s.tables is not None]
        return sum(missing) <= self._cache.available
