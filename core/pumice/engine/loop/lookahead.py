"""Plan the steps that a program computes by itself: their number, by sequences and measured times, and their picks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pumice.backend import Capabilities
from pumice.backend.pick import Ahead, Ask, Pick, Restriction
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.drafts.choice import DraftChoice
from pumice.engine.requests.generation import Generation, Running

SECONDS = 0.02
"""Maximum seconds of consecutive steps, so that tokens arrive evenly and the device does not seem to hang."""


class Lookahead:
    """Plans steps for a program that picks tokens by itself, with the capabilities ``can``.

    ``most``: maximum consecutive steps; -1: as many as fit into ``SECONDS`` by the times measured at the load.
    """

    def __init__(self, capabilities: Capabilities, cache: KVCache, choice: DraftChoice, most: int = -1) -> None:
        self.can = capabilities if most < 0 else replace(capabilities, max_steps=min(most, capabilities.max_steps))
        self._is_measured = most < 0
        self._cache = cache
        self._choice = choice

    def steps(self, members: Sequence[tuple[Running, int]], n_ahead: int = 0, most: float = math.inf) -> int:
        """Return the number of steps for this batch, a power of two, with blocks held for all. 0: logits are needed.

        They follow ``n_ahead`` submitted steps, and are ``most`` at most. Also 0 if a sequence will have ended with
        those before.
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
            useful: float = 1  # a client waits for the first token, and a restriction holds for one token
        else:
            useful = 2 * sum(generation.n_right for generation in generations) / len(generations)
            useful = min(useful, max(n_left) - n_ahead)
        n, most = 1, min(useful, room, most, self._most_in_time(len(running)))
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
        """Return True if the program can pick the next tokens of all sequences, and wrong ones can be undone.

        A program picks no token after a position that the graph for media computes.
        """
        if any(member.generation.needs_media_graph for member in running):
            return False
        if not all(member.pending == 1 and self._guesses(member) for member in running):
            return False
        checkpoints, follows = self._cache.checkpoints, self.can.registers and self.decides(running)
        return checkpoints is None or follows or checkpoints.available >= len(running)

    def _most_in_time(self, n_seqs: int) -> float:
        """Return the steps of ``n_seqs`` sequences that fit into the time; all without a measurement."""
        costs = self._choice.costs
        if not self._is_measured or not costs.seconds:
            return self.can.max_steps
        return min(self.can.max_steps, SECONDS / (costs.seconds * costs.of(n_seqs)))

    def drafts(self, members: Sequence[tuple[Running, int]]) -> bool:
        """Return True if the program may draft the next tokens of this batch by itself: of few generating sequences.

        Their picks have no restrictions, and positions are those of the text.
        """
        return self.verifies(members) and not self.restricts([running.generation for running, _ in members])

    def verifies(self, members: Sequence[tuple[Running, int]]) -> bool:
        """Return True if the program may verify drafts of the host for this batch.

        Picks may have restrictions that are known behind drafted tokens.
        """
        if not self.lengths(len(members)):
            return False
        return all(self._verifies(running, n_new) for running, n_new in members)

    def lengths(self, n_seqs: int) -> Sequence[int]:
        """Return the numbers of tokens that the program may draft for each of ``n_seqs`` sequences, ascending."""
        most = self.can.drafted_rows or 1 + max(self.can.drafted, default=0)
        return [n_drafted for n_drafted in self.can.drafted if n_seqs * (1 + n_drafted) <= most]

    def _verifies(self, running: Running, n_new: int) -> bool:
        generation = running.generation
        is_text = generation.media is None and running.memory is None
        if not (is_text and generation.generated and n_new == running.pending == 1 and not running.undecided):
            return False
        pick = generation.chain.pick
        if pick is None or not self.trusts(generation):
            return False
        if not pick.restricted:
            return True
        if not generation.chain.looks_ahead:
            return False
        return len(generation.chain.restriction.biases) <= self.can.picks.added

    def has_room(self, sequences: Sequence[Running], n_drafted: int, n_steps: int) -> bool:
        """Hold blocks for steps with drafts; return False if there are too few, or the context ends."""
        n_rows = n_steps * (1 + n_drafted)
        if any(running.generation.n_ctx - running.n_past < n_rows for running in sequences):
            return False
        return self._blocks_suffice(sequences, n_rows) and all(
            self._cache.extend(running.tables, running.n_past, n_rows) for running in sequences
        )

    def n_best(self, generations: Sequence[Generation]) -> int:
        """Return how many of the highest logits to request: chains that lower some may need more than they keep."""
        lowering = any(item.chain.lowers and not self.trusts(item) for item in generations)
        most = self._most(generations[0])
        return most if lowering else max(self._pick(item).top_k for item in generations)

    def trusts(self, generation: Generation) -> bool:
        """Return True if the program's pick is the next token without a check of the candidates."""
        if generation.trusted is None:
            generation.trusted = self._can_trust(generation)
        return generation.trusted

    def _can_trust(self, generation: Generation) -> bool:
        pick = generation.chain.pick
        if pick is None or not pick.exact or not self.can.decides:
            return False
        if generation.wants_raw and (generation.request.logprobs or 0) > self._most(generation):
            return False
        return len(pick.biases) <= self.can.picks.biases and pick.last_n <= self.can.picks.last_n

    def restricts(self, generations: Sequence[Generation]) -> bool:
        """Return True if any token that the program picks has a restriction."""
        return any(self._pick(generation).restricted for generation in generations)

    def restriction(self, running: Running) -> Restriction:
        """Return the restriction of the next token. If it exceeds the program's capabilities, all logits are needed."""
        generation = running.generation
        if not self._pick(generation).restricted:
            return Restriction()
        limits = generation.chain.restriction
        running.undecided = len(limits.biases) > self.can.picks.added
        return Restriction() if running.undecided else limits

    def ask(
        self,
        generations: Sequence[Generation],
        n_steps: int,
        n_ahead: int | Sequence[int] = 0,
        before: Ask | None = None,
    ) -> Ask:
        """Return the ``Ask`` of these steps, which follow ``n_ahead`` others, the last of them with ``before``.

        ``n_ahead``: of all sequences, or of each.
        """
        if before and len(before.numbers) == n_steps and all(item.chain.certain for item in generations):
            return before
        aheads = [n_ahead] * len(generations) if isinstance(n_ahead, int) else n_ahead
        drawn = [item.chain.peek(n_steps, self._drawn(item, n)) for item, n in zip(generations, aheads, strict=True)]
        numbers = np.concatenate(drawn).reshape(-1, n_steps).T
        if before:
            return replace(before, numbers=numbers)
        picks = [self._pick(generation) for generation in generations]
        pasts = [item.past(pick.last_n) for item, pick in zip(generations, picks, strict=True)]
        tops = [max(1, item.request.logprobs or 0) for item in generations if item.wants_raw]
        return Ask(picks, numbers, self.n_best(generations), pasts, max(tops, default=0))

    def token(self, generation: Generation, ahead: Ahead, step: int, row: int, is_finite: bool) -> int | None:
        """Return the next token after a step; None if all logits are needed. ``is_finite``: the highest logit is."""
        if not self.trusts(generation):
            return generation.sample(ahead.logits[step, row], ahead.ids[step, row])
        if not is_finite:
            return None
        generation.chain.skip(self.draws(generation))
        return self.picked(generation, ahead, step, row)

    def draws(self, generation: Generation) -> int:
        """Return the random numbers that the next token takes: none if a mask forces it."""
        return generation.draws(generation.chain.few)

    def _drawn(self, generation: Generation, n_ahead: int) -> int:
        """Return the random numbers that pending steps take; restricted picks have only one."""
        return self.draws(generation) if n_ahead and self._pick(generation).restricted else n_ahead

    def picked(self, generation: Generation, ahead: Ahead, step: int, row: int) -> int:
        """Return the next token of a trusted generation."""
        return generation.picked(ahead, step, row, self._pick(generation))

    def decides(self, running: Sequence[Running]) -> bool:
        """Return True if the program picks the next token of each, however many tokens are read before."""
        return all(self._guesses(item) and self.trusts(item.generation) for item in running)

    def _most(self, generation: Generation) -> int:
        """Return the maximum number of highest logits from the program."""
        return min(self.can.picks.best, generation.chain.n_vocab)

    def _pick(self, generation: Generation) -> Pick:
        """Return the generation's pick: exact, or a guess."""
        pick = generation.chain.pick
        assert pick is not None
        return pick if self.trusts(generation) else pick.unadjusted()

    def _guesses(self, running: Running) -> bool:
        chain = running.generation.chain
        if running.undecided or chain.pick is None or chain.pick.top_k > self.can.picks.best:
            return False
        return self.trusts(running.generation) or (chain.n_best is not None and not running.generation.wants_raw)

    def _blocks_suffice(self, running: Sequence[Running], n_steps: int) -> bool:
        """Return True if blocks suffice without taking those of waiting sequences."""
        missing = [self._cache.missing(member.tables, member.n_past, n_steps) for member in running]
        return sum(missing) <= self._cache.available
