"""Multi-step decoding: how many steps a program may take by itself, by what sequences allow and how fast it was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.backend import Ahead, Pick, Program
from pumice.engine.generation import Generation, Running
from pumice.engine.kv_cache import KVCache

SECONDS = 0.02
"""That the steps may take: tokens still come evenly, and nobody takes the device for hung."""


class Asked(NamedTuple):
    """Arguments of ``run_ahead``."""

    picks: Sequence[Pick]
    numbers: NDArray[np.float32]
    n_best: int
    pasts: Sequence[Sequence[int]]


class Lookahead:
    """For a program that generates by itself (``Program.run_ahead``)."""

    def __init__(self, program: Program, cache: KVCache) -> None:
        self._program = program
        self._cache = cache
        self._seconds: dict[int, float] = {}  # number of sequences -> seconds of one of their steps
        self._prepared: set[tuple[int, int]] = set()

    def steps(self, members: Sequence[tuple[Running, int]], n_ahead: int = 0) -> int:
        """How many for this batch: a power of two, with blocks held for all of them. 0: its logits must be seen.

        They are behind ``n_ahead`` others that are on their way; 0 also where a sequence will have ended with those.
        """
        running = [member for member, _ in members]
        generations = [member.generation for member in running]
        if not all(member.pending == 1 and self._guesses(member) for member in running):
            return 0
        if self._cache.checkpoints is not None and self._cache.checkpoints.available < len(running):
            return 0  # wrong guesses could not be taken back
        useful = 2 * sum(generation.n_right for generation in generations) / len(generations)
        useful = min(useful, max(generation.n_left for generation in generations) - n_ahead)
        if not all(generation.generated for generation in generations):
            useful = 1  # a first token is waited for
        room = min(member.generation.n_ctx - member.n_past for member in running) - n_ahead
        if n_ahead and (room < 1 or min(generation.n_left for generation in generations) <= n_ahead):
            return 0
        seconds = self._seconds.get(len(running), math.inf)
        n = 1
        while 2 * n <= min(useful, room, self._program.max_steps) and 2 * n * seconds <= SECONDS:
            n *= 2
        while n > 1 and not self._blocks_suffice(running, n_ahead + n):
            n //= 2
        if n_ahead and not self._blocks_suffice(running, n_ahead + n):
            return 0
        for member in running:
            self._cache.extend(member.tables, member.n_past, n_ahead + n)
        return n

    def took(self, n_seqs: int, n_steps: int, seconds: float) -> None:
        """Note a time; not the first of its kind, in which the program may have prepared what it needs."""
        if (n_seqs, n_steps) in self._prepared:
            self._seconds[n_seqs] = seconds / n_steps
        self._prepared.add((n_seqs, n_steps))

    def n_best(self, generations: Sequence[Generation]) -> int:
        """How many of the highest logits to ask for: a chain that lowers some itself may need more than it keeps."""
        chains = [generation.chain for generation in generations]
        lowering = any(each.chain.lowers and not self.trusts(each) for each in generations)
        most = min(self._program.max_best, chains[0].n_vocab)
        return most if lowering else max(chain.n_best or 0 for chain in chains)

    def trusts(self, generation: Generation) -> bool:
        """Whether what the program picks is the next token, whatever the host would say of the candidates."""
        pick = generation.chain.pick
        if pick is None or not pick.exact or generation.request.logprobs is not None or not self._program.decides:
            return False
        n_biases, last_n = self._program.max_adjustments
        return len(pick.biases) <= n_biases and pick.last_n <= last_n

    def ask(self, generations: Sequence[Generation], n_steps: int, n_ahead: int = 0) -> Asked:
        """What the program is to do, behind so many other steps."""
        picks = [self._pick(generation) for generation in generations]
        numbers = np.stack([each.chain.peek(n_steps, n_ahead) for each in generations], axis=1)
        pasts = [each.past(pick.last_n) for each, pick in zip(generations, picks, strict=True)]
        return Asked(picks, numbers, self.n_best(generations), pasts)

    def token(self, generation: Generation, ahead: Ahead, step: int, row: int) -> int | None:
        """The next token, after a step; None where only all logits can tell."""
        if not self.trusts(generation):
            return generation.sample(ahead.logits[step, row], ahead.ids[step, row])
        if not math.isfinite(ahead.logits[step, row, 0]):
            return None
        generation.chain.skip(1)
        return int(ahead.picked[step, row])

    def _pick(self, generation: Generation) -> Pick:
        """What the program does for it: all that there is to do, or a guess."""
        pick = generation.chain.pick
        assert pick is not None
        return pick if self.trusts(generation) else pick.unadjusted()

    def _guesses(self, running: Running) -> bool:
        chain = running.generation.chain
        if running.undecided or running.generation.wants_raw or chain.pick is None or chain.n_best is None:
            return False
        return chain.n_best <= self._program.max_best

    def _blocks_suffice(self, running: Sequence[Running], n_steps: int) -> bool:
        """Without taking any from sequences that wait."""
        missing = [self._cache.missing(member.tables, member.n_past, n_steps) for member in running]
        return sum(missing) <= self._cache.available
