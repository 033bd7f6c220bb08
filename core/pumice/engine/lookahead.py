"""What a program is asked: how many steps by itself, by what sequences allow and how fast it was, with which picks."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pumice.backend import Capabilities
from pumice.engine.generation import Generation, Running
from pumice.engine.kv_cache import KVCache
from pumice.pick import Ahead, Ask, Pick, Restriction

logger = logging.getLogger("pumice")

SECONDS = 0.02
"""That the steps may take: tokens still come evenly, and nobody takes the device for hung."""


class Lookahead:
    """For a program that picks tokens by itself: ``can`` says how.

    ``most``: steps in a row; -1: as many as ``SECONDS`` allow, by what steps took.
    """

    def __init__(self, capabilities: Capabilities, cache: KVCache, most: int = -1) -> None:
        self.can = capabilities if most < 0 else replace(capabilities, max_steps=min(most, capabilities.max_steps))
        self._is_measured = most < 0
        self._cache = cache
        self._seconds: dict[int, float] = {}  # number of sequences -> seconds of one of their steps
        self._prepared: set[tuple[int, int]] = set()
        self._told: set[tuple[int, int]] = set()  # what the log has of number of sequences and steps

    def steps(self, members: Sequence[tuple[Running, int]], n_ahead: int = 0) -> int:
        """How many for this batch: a power of two, with blocks held for all of them. 0: its logits must be seen.

        They are behind ``n_ahead`` others that are on their way; 0 also where a sequence will have ended with those.
        """
        running = [member for member, _ in members]
        generations = [member.generation for member in running]
        if not n_ahead and not self._may_begin(running):
            return 0
        n_left = [generation.n_left for generation in generations]
        room = min([member.generation.n_ctx - member.n_past for member in running]) - n_ahead
        if n_ahead and (room < 1 or min(n_left) <= n_ahead):
            return 0
        if self.restricts(generations) or not all(generation.generated for generation in generations):
            useful: float = 1  # a first token is waited for, and a restriction is known for one token only
        else:
            useful = 2 * sum(generation.n_right for generation in generations) / len(generations)
            useful = min(useful, max(n_left) - n_ahead)
        n, most = 1, min(useful, room, self._most_in_time(len(running)))
        while 2 * n <= most:
            n *= 2
        while n > 1 and not self._blocks_suffice(running, n_ahead + n):
            n //= 2
        if n_ahead and not self._blocks_suffice(running, n_ahead + n):
            return 0
        for member in running:
            self._cache.extend(member.tables, member.n_past, n_ahead + n)
        return n

    def _may_begin(self, running: Sequence[Running]) -> bool:
        """Whether the program can pick the next tokens of all, and wrong ones could be taken back."""
        if not all(member.pending == 1 and self._guesses(member) for member in running):
            return False
        checkpoints, follows = self._cache.checkpoints, self.can.follows and self.decides(running)
        return checkpoints is None or follows or checkpoints.available >= len(running)

    def _most_in_time(self, n_seqs: int) -> float:
        """Steps of so many sequences that a moment allows; 1 until it is known."""
        if not self._is_measured:
            return self.can.max_steps
        seconds = self._seconds.get(n_seqs, math.inf)
        return min(self.can.max_steps, SECONDS / seconds) if seconds else self.can.max_steps

    def took(self, n_seqs: int, n_steps: int, seconds: float) -> None:
        """Note a time; not the first of its kind, in which the program may have prepared what it needs."""
        if self._is_measured and (n_seqs, n_steps) in self._prepared:
            self._seconds[n_seqs] = seconds / n_steps
            self._tell(n_seqs)
        self._prepared.add((n_seqs, n_steps))

    def _tell(self, n_seqs: int) -> None:
        """Log how many steps a moment allows, where that is new."""
        n = 1 << (max(int(self._most_in_time(n_seqs)), 1).bit_length() - 1)
        if (n_seqs, n) not in self._told:
            self._told.add((n_seqs, n))
            each, limit = 1e3 * self._seconds[n_seqs], 1e3 * SECONDS
            logger.info("lookahead: %d steps in a row for %d sequences: %.2f ms each, of %.0f", n, n_seqs, each, limit)

    def n_best(self, generations: Sequence[Generation]) -> int:
        """How many of the highest logits to ask for: a chain that lowers some itself may need more than it keeps."""
        lowering = any(each.chain.lowers and not self.trusts(each) for each in generations)
        most = self._most(generations[0])
        return most if lowering else max(self._pick(each).top_k for each in generations)

    def trusts(self, generation: Generation) -> bool:
        """Whether what the program picks is the next token, whatever the host would say of the candidates."""
        if generation.trusted is None:
            generation.trusted = self._can_trust(generation)
        return generation.trusted

    def _can_trust(self, generation: Generation) -> bool:
        pick = generation.chain.pick
        if pick is None or not pick.exact or not self.can.decides:
            return False
        if generation.wants_raw and (generation.request.logprobs or 0) > self._most(generation):
            return False
        return len(pick.biases) <= self.can.max_biases and pick.last_n <= self.can.max_last_n

    def restricts(self, generations: Sequence[Generation]) -> bool:
        """Whether any token that the program picks has a restriction."""
        return any(self._pick(generation).restricted for generation in generations)

    def restriction(self, running: Running) -> Restriction:
        """What holds for the next token. Where that is more than the program can do, all logits must be seen."""
        generation = running.generation
        if not self._pick(generation).restricted:
            return Restriction()
        found = generation.chain.restriction
        running.undecided = len(found.biases) > self.can.max_added
        return Restriction() if running.undecided else found

    def ask(self, generations: Sequence[Generation], n_steps: int, n_ahead: int = 0, before: Ask | None = None) -> Ask:
        """What the program is to do, behind so many other steps, of which the last did what ``before`` says."""
        if before and len(before.numbers) == n_steps and all(each.chain.certain for each in generations):
            return before
        drawn = [each.chain.peek(n_steps, self._drawn(each, n_ahead)) for each in generations]
        numbers = np.concatenate(drawn).reshape(-1, n_steps).T
        if before:
            return replace(before, numbers=numbers)
        picks = [self._pick(generation) for generation in generations]
        pasts = [each.past(pick.last_n) for each, pick in zip(generations, picks, strict=True)]
        tops = [max(1, each.request.logprobs or 0) for each in generations if each.wants_raw]
        return Ask(picks, numbers, self.n_best(generations), pasts, max(tops, default=0))

    def token(self, generation: Generation, ahead: Ahead, step: int, row: int) -> int | None:
        """The next token, after a step; None where only all logits can tell."""
        if not self.trusts(generation):
            return generation.sample(ahead.logits[step, row], ahead.ids[step, row])
        if not math.isfinite(ahead.logits[step, row, 0]):
            return None
        generation.chain.skip(self.draws(generation))
        return self.picked(generation, ahead, step, row)

    def draws(self, generation: Generation) -> int:
        """Random numbers that the next token takes: none where the host would append it, as the only one of a mask."""
        appends = generation.generated and generation.request.logprobs is None
        return 0 if appends and generation.chain.few else 1

    def _drawn(self, generation: Generation, n_ahead: int) -> int:
        """Random numbers that so many steps on their way take; of restricted picks that is one step."""
        return self.draws(generation) if n_ahead and self._pick(generation).restricted else n_ahead

    def picked(self, generation: Generation, ahead: Ahead, step: int, row: int) -> int:
        """The next token, of one that is trusted."""
        return generation.picked(ahead, step, row, self._pick(generation))

    def decides(self, running: Sequence[Running]) -> bool:
        """Whether the program picks the next token of each by itself, however many tokens it has to read before."""
        return all(self._guesses(each) and self.trusts(each.generation) for each in running)

    def _most(self, generation: Generation) -> int:
        """The most of the highest logits that the program can give."""
        return min(self.can.max_best, generation.chain.n_vocab)

    def _pick(self, generation: Generation) -> Pick:
        """What the program does for it: all that there is to do, or a guess."""
        pick = generation.chain.pick
        assert pick is not None
        return pick if self.trusts(generation) else pick.unadjusted()

    def _guesses(self, running: Running) -> bool:
        chain = running.generation.chain
        if running.undecided or chain.pick is None or chain.pick.top_k > self.can.max_best:
            return False
        return self.trusts(running.generation) or (chain.n_best is not None and not running.generation.wants_raw)

    def _blocks_suffice(self, running: Sequence[Running], n_steps: int) -> bool:
        """Without taking any from sequences that wait."""
        missing = [self._cache.missing(member.tables, member.n_past, n_steps) for member in running]
        return sum(missing) <= self._cache.available
