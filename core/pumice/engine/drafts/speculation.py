"""Speculative decoding: draft the next tokens of sequences, and verify them in one step (arXiv:2211.17192).

A draft is a guess of the tokens that the sampler chain will choose. The chain chooses every token from the model's
logits, with or without drafts; if its choice equals the drafted token, the logits of the next position exist already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.backend.step import Batch, Limits
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.drafts.choice import Acceptance, DraftChoice, measure_costs, promise
from pumice.engine.drafts.drafter import FORCED, Draft, Drafter, held_drafts, may_draft, most_drafted, possible_tokens
from pumice.engine.drafts.model import DraftModel
from pumice.engine.drafts.next_tokens import NextTokens
from pumice.engine.drafts.sequence_proposers import NEVER, PREDICTION, ProposerPool
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.generation import Generation, Members
from pumice.errors import BackendError
from pumice.proposers import Proposer

ENOUGH = 4.0  # expected accepted tokens of a draft above which no further proposer is asked
LONGEST = 15  # maximum tokens of a draft, unless ``n_draft`` is set


class Round(NamedTuple):
    """``n`` tokens of each sequence, which ``drafter`` drafts on the device in front of the step that verifies them."""

    drafter: Drafter
    n: int


class Speculation:
    """Asks the proposers of sequences for drafts that are expected to pay.

    A step in which all of them rest costs nothing: texts are passed to proposers when they are asked next.

    Args:
        proposers: factories of proposers that look drafts up, by name.
        auto: names of the proposers that the choice ``auto`` selects.
        default: choice of requests without their own.
        n_draft: drafted tokens per sequence and step; -1: as many as are expected to save time.
        is_invariant: whether results are independent of the number of rows.
        layer: the drafting layer of the model or of its draft model, if there is one.
        model: the draft model, if there is one.

    Attributes:
        names: names of proposers that requests may choose.
        auto: names of the proposers that the choice ``auto`` selects.
        choice: chooses the lengths of drafts.
        is_exact: True if texts are the same with drafts and without.
        longest: maximum tokens that a model drafts.
        drafters: the layer and the model by name.
    """

    def __init__(
        self,
        proposers: Mapping[str, Callable[[], Proposer]],
        auto: Sequence[str] = (),
        default: str = "off",
        n_draft: int = -1,
        is_invariant: bool = False,
        layer: NextTokens | None = None,
        model: DraftModel | None = None,
    ) -> None:
        self.choice = DraftChoice(n_draft)
        self.layer = layer
        self.is_exact = is_invariant
        self.longest = LONGEST
        self.drafters: dict[str, Drafter] = {drafter.name: drafter for drafter in (model, layer) if drafter}
        self.names: Collection[str] = [*proposers, *self.drafters]
        self.auto = list(auto)
        self._pool = ProposerPool(proposers, self.drafters, self.auto, default)
        self.close = self._pool.close
        self._n_steps = 0

    @property
    def is_default(self) -> bool:
        """True if requests without a choice of their own have proposers."""
        return bool(self._pool.chosen())

    def prepare(self, runner: Runner, cache: KVCache) -> None:
        """Measure what steps cost, and the drafts that requests have by default, before there are sequences."""
        chosen = {name: drafter for name, drafter in self.drafters.items() if name in self._pool.chosen()}
        if runner.capabilities.max_steps and self.layer and self.layer.name in chosen:
            with suppress(BackendError):  # left to the first draft of a sequence
                runner.compile_drafts()
        self.choice.costs = measure_costs(runner, cache, chosen, self.is_default and not self.choice.is_fixed)

    def passed(self, n_steps: int) -> None:
        """Count steps that were submitted without asking for drafts."""
        self._n_steps += n_steps

    def n_free(self, members: Members) -> int:
        """Return the number of steps, from the current one on, after whose first no proposer is asked; at least 1."""
        return max(1, self._wakes(members) - self._n_steps)

    def _wakes(self, members: Members) -> int:
        """Return the number of the step in which a proposer of a batch is asked next."""
        if not self.choice.may_pay(len(members)):
            return NEVER
        return min((self._pool.wakes(running) for running, _ in members), default=NEVER)

    def _is_awake(self, name: str, generation: Generation, n_ahead: int = 0) -> bool:
        """Return True if a proposer of a sequence does not rest in the step that is ``n_ahead`` after the current."""
        if own := self._pool.get(generation):
            return name in own.acceptance and own.acceptance[name].wakes <= self._n_steps + n_ahead
        return name in self._pool.names(generation)

    # --- drafts for a step

    def draft(
        self,
        members: Members,
        cache: KVCache,
        limits: Limits,
        most: int | None = None,
        drafter: Drafter | None = None,
        rounds: Sequence[int] = (),
    ) -> dict[Generation, Draft] | Round:
        """Return the drafts for the members of a step, for which cache blocks are held, or a round that drafts them.

        Args:
            members: sequences and their numbers of tokens.
            cache: the cache of the model.
            limits: the largest step.
            most: maximum tokens of a draft; None: as many as there is room for.
            drafter: what drafts in rounds, if anything does.
            rounds: numbers of tokens of a round that the program verifies, ascending.
        """
        self._n_steps += 1
        n_rows = sum(n_new for _, n_new in members)
        if self._wakes(members) > self._n_steps or not self.choice.may_pay(n_rows):
            return {}
        if not all(may_draft(running, n_new) for running, n_new in members):
            return {}
        sequences = [running for running, _ in members]
        self._pool.start(sequences)
        for name, drafting in self.drafters.items():
            self._read(drafting, [running for running in sequences if self._is_awake(name, running)])
        room = min(limits.n_batch - n_rows, limits.n_outputs - len(members))
        longest = min(room, self.choice.n_draft if self.choice.is_fixed else LONGEST, room if most is None else most)
        drafts = self._propose(sequences, longest, drafter.name if drafter else None)
        owners = [self._pool[running] for running in sequences]
        chances = [own.chances(draft) for own, draft in zip(owners, drafts, strict=True)]
        if drafter and max(map(promise, chances)) < ENOUGH:
            n = self.round_length(drafter, sequences, rounds)
            if n and drafter.holds(sequences, n):
                self._note(sequences, drafts, {})
                return Round(drafter, n)
        lengths = self.choice.lengths(chances, n_rows, room)
        held = held_drafts(members, drafts, lengths, cache) if any(lengths) else {}
        self._note(sequences, drafts, held)
        return held

    def _read(self, drafter: Drafter, sequences: Sequence[Generation]) -> None:
        """Let a drafter read a part of the new texts of sequences."""
        try:
            drafter.read(sequences)
        except Exception as error:
            self.drop(drafter, sequences, "read", error)

    def _propose(self, sequences: Sequence[Generation], longest: int, in_rounds: str | None) -> list[Draft | None]:
        """Return the most promising draft of each sequence, of ``longest`` tokens at most, if there is one.

        The proposer ``in_rounds`` is not asked.
        """
        owners = [self._pool[running] for running in sequences]
        most = [max(0, min(most_drafted(running), longest)) for running in sequences]
        drafts: list[Draft | None] = [
            Draft(FORCED, forced[:n]) if own.acceptance and (forced := list(running.chain.forced)) else None
            for own, running, n in zip(owners, sequences, most, strict=True)
        ]
        promised = [promise(own.chances(draft)) for own, draft in zip(owners, drafts, strict=True)]
        for name in dict.fromkeys(name for own in owners for name in own.acceptance if name != in_rounds):
            asked = [i for i, running in enumerate(sequences) if most[i] and self._is_asked(name, running)]
            asked = [i for i in asked if promised[i] < ENOUGH]
            if not asked:
                continue
            some, is_computed = [sequences[i] for i in asked], name in self.drafters
            limit = self._computed_length(name, some, range(1, longest + 1)) if is_computed else longest
            proposals = self._pool.ask(name, some, [min(most[i], limit) for i in asked])
            for i, proposal in zip(asked, proposals, strict=True):
                if name not in owners[i].acceptance:  # it had an error
                    continue
                draft = Draft(name, possible_tokens(sequences[i], proposal))
                promising = promise(owners[i].chances(draft))
                if promising > promised[i]:
                    drafts[i], promised[i] = draft, promising
                elif not draft.tokens and is_computed:  # it found no token probable enough
                    owners[i].acceptance[name].rates.count(1, 0)
                elif not draft.tokens:
                    self._rest(owners[i].acceptance[name], False)
        return drafts

    def _is_asked(self, name: str, running: Generation) -> bool:
        """Return True if a sequence has a proposer that does not rest, and has read what it needs."""
        drafter = self.drafters.get(name)
        return self._is_awake(name, running) and (drafter is None or drafter.knows(running))

    def _computed_length(self, name: str, sequences: Sequence[Generation], lengths: Sequence[int]) -> int:
        """Return the number of tokens to compute for each sequence; it is a try if that is not expected to pay."""
        accepted = [self._pool[running].acceptance[name] for running in sequences]
        n, pays = self.choice.common_length(name, [own.rates for own in accepted], len(sequences), lengths)
        for own in accepted:
            self._rest(own, pays)
        return n

    def _rest(self, accepted: Acceptance, pays: bool) -> None:
        """Let a proposer rest that is not expected to pay, unless the number of drafted tokens is set."""
        if pays:
            accepted.end_rest()
        elif not self.choice.is_fixed:
            accepted.rest(self._n_steps)

    def _note(
        self, sequences: Sequence[Generation], drafts: Sequence[Draft | None], held: Collection[Generation]
    ) -> None:
        """Let proposers rest whose drafts are not verified, but compared with the tokens that follow instead."""
        for running, draft in zip(sequences, drafts, strict=True):
            if draft is None:
                continue
            own = self._pool[running]
            if running not in held:
                own.keep_unverified(draft, running)
            if draft.name in own.acceptance and draft.name not in self.drafters:
                self._rest(own.acceptance[draft.name], running in held)

    def took(self, drafts: Mapping[Generation, Draft]) -> None:
        """Record the accepted tokens of the drafts that a step verified."""
        for running, draft in drafts.items():
            self._time(running, len(draft.tokens), draft.n_accepted, draft.name == PREDICTION)
            if running in self._pool:  # it did not fail meanwhile
                self._pool.updated(running).judge(draft)

    def _time(self, running: Generation, n_drafted: int, n_accepted: int, is_prediction: bool = False) -> None:
        running.timings.drafted(n_drafted, n_accepted, is_prediction)
        running.timings.drafts_exact = self.is_exact

    # --- a layer that drafts from hidden states

    def hears(self, members: Members) -> bool:
        """Return True if the layer that drafts keeps hidden states of a step with these members."""
        layer = self.layer
        if layer is None or layer.is_off or not self.choice.may_pay(len(members)):
            return False
        return any(self._is_awake(layer.name, running, 1) for running, _ in members)

    def missing(self, members: Members) -> list[Generation]:
        """Return the sequences whose latest hidden states the layer lacks, if it is to draft in the next step."""
        layer = self.layer
        if layer is None or not self.choice.may_pay(len(members)):
            return []
        return [item for item, _ in members if layer.misses(item) and self._is_awake(layer.name, item, 1)]

    def landed(self, batch: Batch, members: Members, stream: NDArray[np.float32]) -> None:
        """Pass the rows ``stream [n_tokens, n_stream]`` of a step to the layer that drafts, unless it rests.

        After an error, the layer drafts no more for the sequence.
        """
        layer = self.layer
        assert layer is not None
        drafting = [(i, item) for i, (item, _) in enumerate(members) if self._is_awake(layer.name, item, 1)]
        stream = stream.copy() if drafting else stream  # before the layer runs
        for index, running in drafting:
            try:
                layer.landed(batch, index, running, stream)
            except Exception as error:
                self.drop(layer, [running], "landed", error)

    # --- rounds, in which a layer or a draft model drafts on the device

    def drafter(self, members: Members, target: Runner) -> Drafter | None:
        """Return what drafts in rounds if no other computes drafts of members: the layer, or the draft model."""
        names = {name for running, _ in members for name in self._pool.names(running)}
        computing = [drafter for name, drafter in self.drafters.items() if name in names]
        if len(computing) != 1 or not computing[0].submits(target):
            return None
        return computing[0] if all(computing[0].knows(running) for running, _ in members) else None

    def follows(self, drafter: Drafter, sequences: Sequence[Generation], rounds: Sequence[int], n: int) -> bool:
        """Return True if a round of ``n`` tokens follows another one, since no proposer is to look at the tokens."""
        for running in sequences:
            looking = [name for name in self._pool.names(running) if name not in self.drafters]
            if any(self._is_awake(name, running, 1) for name in looking):
                return False
        return self.round_length(drafter, sequences, rounds) == n

    def round_length(self, drafter: Drafter, sequences: Sequence[Generation], rounds: Sequence[int]) -> int:
        """Return the number of tokens that are drafted of each sequence in a round, one of ``rounds``; 0: none."""
        if any(not self._is_awake(drafter.name, running, 1) for running in sequences):
            return 0
        most = max(rounds, default=0)
        for running in sequences:
            room = running.n_ctx - len(running.tokens)
            most = min(most, room, most if running.request.n_draft is None else running.request.n_draft)
        possible = [n for n in rounds if n <= min(most, self.longest)]
        if self.choice.is_fixed:
            return min(self.choice.n_draft, most) if self.choice.n_draft <= self.longest else max(possible, default=0)
        return self._computed_length(drafter.name, sequences, possible) if possible else 0

    def judge_round(self, name: str, running: Generation, n: int, n_right: int, n_accepted: int) -> None:
        """Record the tokens of a round that were right, and those that the text has taken."""
        self._time(running, n, min(max(0, n_accepted), n))
        if (own := self._pool.get(running)) and name in own.acceptance:
            own.acceptance[name].rates.count(n, min(n_right, n))

    def drop(self, drafter: Drafter, sequences: Sequence[Generation], method: str, error: Exception) -> None:
        """Let sequences go on without a layer or model that drafts, after an error of it."""
        for running in sequences:
            self._pool.drop(running, drafter.name, method, error)
