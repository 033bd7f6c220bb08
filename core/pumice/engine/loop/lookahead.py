"""Plan the steps after which a program picks tokens: their number, by sequences and measured times, and their picks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pumice.backend import Capabilities
from pumice.backend.pick import Ahead, Ask, Pick, Restriction
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.drafts.choice import DraftChoice
from pumice.engine.requests.generation import Generation, Members
from pumice.sampler.mask import Mask

ALL = np.uint32(0xFFFFFFFF)
SECONDS = 0.02
"""Maximum seconds of consecutive steps, so that tokens arrive evenly and the device does not seem to hang."""


class PickedStep(NamedTuple):
    """The results of one of the steps of an ``Ahead``, with the picked token of each row."""

    ahead: Ahead
    number: int  # within the ``Ahead``
    tokens: list[int]
    are_finite: list[bool]  # the highest logits

    @classmethod
    def all_of(cls, ahead: Ahead) -> list[PickedStep]:
        tokens, finite = ahead.picked.tolist(), np.isfinite(ahead.logits[..., 0]).tolist()
        return [cls(ahead, number, *step) for number, step in enumerate(zip(tokens, finite, strict=True))]


class Lookahead:
    """Plans steps for a program that picks tokens by itself, with the capabilities ``can``.

    ``most``: maximum consecutive steps; -1: as many as fit into ``SECONDS`` by the times measured at the load.
    """

    def __init__(self, capabilities: Capabilities, cache: KVCache, choice: DraftChoice, most: int = -1) -> None:
        self.can = capabilities if most < 0 else replace(capabilities, max_steps=min(most, capabilities.max_steps))
        self._is_measured = most < 0
        self._cache = cache
        self._choice = choice

    def steps(self, members: Members, most: float) -> int:
        """Return the number of consecutive steps for this batch, a power of two of at most ``most``.

        Blocks are held for all of them; 0 if there are too few for one. Several steps are of generating sequences whose
        picks are all exact, and have no restrictions, which hold for one token.
        """
        sequences = [running for running, _ in members]
        room = min(running.n_ctx - running.n_past - running.n_ahead for running in sequences)
        if any(n_new > 1 for _, n_new in members) or not self._may_take_several(sequences):
            most = 1
        n_left = max(running.n_left - running.n_coming for running in sequences)
        n, most = 1, min(most, room, n_left, self._most_in_time(len(sequences)))
        while 2 * n <= most:
            n *= 2
        while n and not self._blocks_suffice([(running, n_new + n - 1) for running, n_new in members]):
            n //= 2
        for running, n_new in members if n else ():
            self._cache.extend(running.tables, running.n_past, running.n_ahead + n_new + n - 1)
        return n

    def _may_take_several(self, sequences: Sequence[Generation]) -> bool:
        if not all(running.generated for running in sequences):  # a client waits for the first token
            return False
        return all(map(self.trusts, sequences)) and not self.restricts(sequences)

    def _most_in_time(self, n_seqs: int) -> float:
        """Return the steps of ``n_seqs`` sequences that fit into the time; all without a measurement."""
        costs = self._choice.costs
        if not self._is_measured or not costs.seconds:
            return self.can.max_steps
        return min(self.can.max_steps, SECONDS / (costs.seconds * costs.of(n_seqs)))

    def verifies(self, members: Members) -> bool:
        """Return True if the program may verify drafts for this batch.

        Picks may have restrictions that are known behind drafted tokens.
        """
        if not self.lengths(len(members)):
            return False
        return all(self._verifies(running, n_new) for running, n_new in members)

    def lengths(self, n_seqs: int) -> Sequence[int]:
        """Return the numbers of tokens that the program may verify for each of ``n_seqs`` sequences, ascending."""
        most = self.can.drafted_rows or 1 + max(self.can.drafted, default=0)
        return [n_drafted for n_drafted in self.can.drafted if n_seqs * (1 + n_drafted) <= most]

    def _verifies(self, running: Generation, n_new: int) -> bool:
        is_text = running.media is None and running.memory is None and running.layers is None
        if not (is_text and running.generated and n_new == running.pending == 1 and not running.undecided):
            return False
        pick = running.chain.pick
        if pick is None or not self.trusts(running):
            return False
        if not pick.restricted:
            return True
        return running.chain.looks_ahead and len(running.chain.restriction.biases) <= self.can.picks.added

    def has_room(self, sequences: Sequence[Generation], n_drafted: int, n_steps: int) -> bool:
        """Hold blocks for steps with drafts; return False if there are too few, or the context ends."""
        n_rows = n_steps * (1 + n_drafted)
        if any(running.n_ctx - running.n_past < n_rows for running in sequences):
            return False
        if not self._blocks_suffice([(running, n_rows - running.n_ahead) for running in sequences]):
            return False
        return all(self._cache.extend(running.tables, running.n_past, n_rows) for running in sequences)

    def trusts(self, generation: Generation) -> bool:
        """Return True if the program's pick is the next token without a check of the candidates."""
        if generation.trusted is None:
            generation.trusted = self._can_trust(generation)
        return generation.trusted

    def _can_trust(self, generation: Generation) -> bool:
        pick = generation.chain.pick
        if pick is None or not pick.exact:
            return False
        if generation.wants_raw and (generation.request.logprobs or 0) > self._most(generation):
            return False
        return len(pick.biases) <= self.can.picks.biases and pick.last_n <= self.can.picks.last_n

    def restricts(self, generations: Sequence[Generation]) -> bool:
        """Return True if any token that the program picks has a restriction."""
        return any(self._pick(generation).restricted for generation in generations)

    def restriction(self, running: Generation) -> Restriction:
        """Return the restriction of the next token. If it exceeds the program's capabilities, all logits are needed."""
        if not self._pick(running).restricted:
            return Restriction()
        limits = running.chain.restriction
        running.undecided = len(limits.biases) > self.can.picks.added
        return Restriction() if running.undecided else limits

    def ask(
        self, sequences: Sequence[Generation], n_steps: int, before: Ask | None = None, with_pending: bool = False
    ) -> Ask:
        """Return the ``Ask`` of the steps behind those that are pending, the last of them with ``before``.

        ``before`` is of the same sequences. ``with_pending``: numbers begin with those of pending steps.
        """
        if before and len(before.numbers) == n_steps and all(item.chain.certain for item in sequences):
            return before
        drawn = [item.chain.peek(n_steps, 0 if with_pending else self._drawn(item)) for item in sequences]
        numbers = np.concatenate(drawn).reshape(-1, n_steps).T
        if before:
            return replace(before, numbers=numbers)
        picks = [self._pick(item) for item in sequences]
        pasts = [_past(item, pick.last_n) for item, pick in zip(sequences, picks, strict=True)]
        tops = [max(1, item.request.logprobs or 0) for item in sequences if item.wants_raw]
        return Ask(picks, numbers, self._n_best(sequences), pasts, max(tops, default=0))

    def ask_rows(
        self, sequences: Sequence[Generation], drafts: Sequence[Sequence[int]], n_drafted: int, follows: bool
    ) -> tuple[Sequence[Sequence[int]], Ask]:
        """Return the ``Ask`` of a step that verifies drafts, with a random number for each row, and the drafts.

        Behind drafts of sequences with masks are the tokens that these force. ``follows``: of a step behind another
        one, with the numbers of both.
        """
        ask = self.ask(sequences, (1 + follows) * (1 + n_drafted), with_pending=follows)
        ask = replace(ask, numbers=ask.numbers.T.reshape(1, -1), n_drafted=n_drafted)
        if not any(pick.restricted for pick in ask.picks):
            return drafts, ask
        return restricted(ask, sequences, drafts, self.can.picks.added)

    def _drawn(self, running: Generation) -> int:
        """Return the random numbers that pending steps take; restricted picks have only one."""
        n = running.n_coming
        return self.draws(running) if n and self._pick(running).restricted else n

    def _n_best(self, generations: Sequence[Generation]) -> int:
        """Return how many of the highest logits to request: chains that lower some may need more than they keep."""
        lowering = any(item.chain.lowers and not self.trusts(item) for item in generations)
        most = self._most(generations[0])
        return most if lowering else max(self._pick(item).top_k for item in generations)

    def token(self, generation: Generation, step: PickedStep, row: int) -> int | None:
        """Return the next token after a step; None if all logits are needed, since the highest is not finite."""
        if not self.trusts(generation):
            return generation.sample(step.ahead.logits[step.number, row], step.ahead.ids[step.number, row])
        if not step.are_finite[row]:
            return None
        generation.chain.skip(self.draws(generation))
        if generation.request.logprobs is not None:
            generation.note_logprobs(step.ahead, step.number, row, self._pick(generation))
        return step.tokens[row]

    def draws(self, generation: Generation) -> int:
        """Return the random numbers that the next token takes: none if a mask forces it."""
        return 0 if generation.chain.few else 1

    def picks(self, sequences: Sequence[Generation]) -> bool:
        """Return True if the program picks the next token of each, or candidates from which its chain chooses."""
        return all(map(self._picks, sequences))

    def decides(self, sequences: Sequence[Generation]) -> bool:
        """Return True if each pick of the program is the next token."""
        return all(self._picks(running) and self.trusts(running) for running in sequences)

    def _picks(self, running: Generation) -> bool:
        pick = running.chain.pick
        if running.undecided or pick is None or pick.top_k > self.can.picks.best:
            return False
        return self.trusts(running) or (running.chain.n_best is not None and not running.wants_raw)

    def _most(self, generation: Generation) -> int:
        """Return the maximum number of highest logits from the program."""
        return min(self.can.picks.best, generation.chain.n_vocab)

    def _pick(self, generation: Generation) -> Pick:
        """Return the generation's pick: exact, or one that gives candidates."""
        pick = generation.chain.pick
        assert pick is not None
        return pick if self.trusts(generation) else pick.unadjusted()

    def _blocks_suffice(self, members: Members) -> bool:
        """Return True if blocks suffice for the next tokens without taking those of waiting sequences."""
        missing = [self._cache.missing(item.tables, item.n_past, item.n_ahead + n) for item, n in members]
        return sum(missing) <= self._cache.available


def _past(generation: Generation, n: int) -> list[int]:
    """Return the last ``n`` tokens of the context without media, or fewer if it is shorter."""
    missing = n - len(generation.generated)
    latest = generation.generated[-n:] if n else []
    return [*generation.spoken[-missing:], *latest] if missing > 0 else latest


def restricted(
    ask: Ask, generations: Sequence[Generation], drafts: Sequence[Sequence[int]], most_added: int
) -> tuple[list[list[int]], Ask]:
    """Return the drafts with the tokens that masks force behind them, and the ``Ask`` with a restriction for each row.

    A row whose mask leaves no choice takes no random number. ``most_added``: biases of a row.
    """
    n_rows, numbers = 1 + ask.n_drafted, ask.numbers.copy()
    restrictions: list[Restriction] = []
    tokens = [list(draft) for draft in drafts]
    for i, (generation, pick) in enumerate(zip(generations, ask.picks, strict=True)):
        if not pick.restricted:
            restrictions += [Restriction()] * n_rows
            continue
        chain = generation.chain
        if chain.mask is None:  # each row may be taken, so its restriction is to be known
            tokens[i] += generation.tokens[-1:] * (ask.n_drafted - len(tokens[i]))
        tokens[i], possible = chain.look_ahead(tokens[i], ask.n_drafted, generation.end_tokens, most_added)
        own, n_drawn = ask.numbers[0, i * n_rows : (i + 1) * n_rows], 0
        for row, item in enumerate(possible):
            numbers[0, i * n_rows + row] = own[n_drawn]
            n_drawn += not item.few
        last = possible[-1]
        ended = last.few == ()  # the sequence ends before this row, which allows no token
        restrictions += [Restriction(item.mask, item.biases) for item in possible[: len(possible) - ended]]
        restrictions += [Restriction()] * ((i + 1) * n_rows - len(restrictions))
        if (padding := _forbidden(last.mask, chain.n_vocab)) is not None:
            tokens[i] += [padding] * (ask.n_drafted - len(tokens[i]))
    return tokens, replace(ask, numbers=numbers, restrictions=restrictions)


def _forbidden(mask: Mask | None, n_vocab: int) -> int | None:
    """Return a token that a mask forbids: no row behind it is right, so none is taken without its restriction."""
    if mask is None:
        return None
    words = np.flatnonzero(mask != ALL)
    if not len(words):
        return None
    word = int(mask[words[0]])
    token = 32 * int(words[0]) + (~word & (word + 1)).bit_length() - 1  # of the lowest bit that is 0
    return token if token < n_vocab else None
