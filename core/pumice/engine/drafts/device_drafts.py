"""Plan submissions of a program that drafts by itself, and verifies its drafts in the steps of one submission.

The program drafts the continuation of the longest match of the text's last tokens. The host compares what it would
have drafted with the tokens of steps without drafts, so acceptance is known before any draft is verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.engine.cache.tables import BlockTables
from pumice.engine.drafts.choice import LOOKED_UP_RATES, DraftChoice, Rates
from pumice.engine.requests.generation import Generation, Running
from pumice.proposers.index import Index

SHORTEST = 2  # tokens of the shortest match; see shaders/verify.comp
FIRST, N_FIRST = 8, 32  # steps of submissions among a text's first tokens, after which drafts may begin
BEGINS = 2  # steps of the first submission with drafts; each has twice as many as the one before
LONGEST_REST = 4  # maximum submissions without drafts from one comparison to the next


class DraftPlan(NamedTuple):
    """The steps of a submission, and the tokens that each drafts; no steps: draft none."""

    n_drafted: int = 0
    n_steps: int = 0


NO_DRAFTS = DraftPlan()


@dataclass(eq=False)
class _Sequence:
    """The text of a sequence, and how much of its drafts is accepted.

    Attributes:
        tables: blocks of the context; others hold another text.
        index: tokens of the context, up to the latest comparison or submission with drafts.
        rates: acceptance of drafts; a step without a match counts as one with a wrong draft.
        n_last: steps of the latest submission with drafts; 0: it had none, or they did not pay.
        rest, n_rested: submissions from one comparison to the next, and since the latest.
    """

    tables: BlockTables
    index: Index = field(default_factory=lambda: Index(SHORTEST))
    rates: Rates = field(default_factory=lambda: Rates(*LOOKED_UP_RATES))
    n_last: int = 0
    rest: int = 1
    n_rested: int = 0

    def read(self, running: Running, n_left: int = 0) -> None:
        """Read the tokens of the context into the index, but for the last ``n_left``."""
        tokens = running.generation.tokens
        if self.tables is not running.tables or len(self.index) > len(tokens):
            self.tables, self.index = running.tables, Index(SHORTEST)
        self.index.extend(tokens[len(self.index) : len(tokens) - n_left])

    def compare(self, running: Running, longest: int, n_steps: int) -> bool:
        """Compare the tokens of ``n_steps`` steps with what would have been drafted; True if a token was right."""
        self.read(running, n_steps)
        tokens, index, is_right = running.generation.tokens, self.index, False
        while (begin := len(index)) < len(tokens):
            place, length = index.match(index.tokens)
            n_accepted, coming = 0, tokens[begin : begin + longest]
            if length:
                period = begin - place
                draft = [index.tokens[place + i % period] for i in range(len(coming))]
                pairs = enumerate(zip(draft, coming, strict=True))
                n_accepted = next((i for i, (guess, token) in pairs if guess != token), len(coming))
            self.rates.count(len(coming), n_accepted)
            is_right = is_right or n_accepted > 0
            index.extend(tokens[begin : begin + n_accepted + 1])
        return is_right


class DeviceDrafts:
    """Plans submissions of a program that drafts by itself, where its drafts are expected to pay."""

    def __init__(self, choice: DraftChoice) -> None:
        self._choice = choice
        self._sequences: dict[Generation, _Sequence] = {}

    def plan(self, sequences: Sequence[Running], lengths: Sequence[int], most: int) -> DraftPlan:
        """Return the plan of the next submission, which drafts as many tokens for each of its sequences.

        Args:
            sequences: all sequences of the submission.
            lengths: numbers of drafted tokens that the program offers, ascending.
            most: maximum steps of a submission.
        """
        limits = [running.generation.request.n_draft for running in sequences]
        limit = min((limit for limit in limits if limit is not None), default=max(lengths, default=0))
        owners = [self._of(running) for running in sequences]
        offered = [n for n in lengths if n <= limit]
        n, pays = self._choice.common_length("", [own.rates for own in owners], len(owners), offered)
        if not pays:
            for own in owners:
                own.n_last = 0
            return NO_DRAFTS
        n_last = min(own.n_last for own in owners)
        return DraftPlan(n, most if self._choice.is_fixed else min(max(BEGINS, 2 * n_last), most))

    def goes_on(self, sequences: Sequence[Running], plan: DraftPlan, most: int) -> bool:
        """Return True if the steps of a plan may follow those of a submission with this plan, whose tokens are unknown.

        So they do once submissions with drafts have paid enough to have ``most`` steps.
        """
        return plan.n_steps == most and self.plan(sequences, [plan.n_drafted], most) == plan

    def most_plain(self, sequences: Sequence[Running]) -> int:
        """Return the maximum steps of a submission without drafts: few at first, to find out soon what drafts save."""
        n_generated = min(len(running.generation.generated) for running in sequences)
        return FIRST if n_generated < N_FIRST else n_generated

    def texts(self, sequences: Sequence[Running]) -> list[NDArray[np.int32]]:
        """Return the tokens of each sequence's context."""
        for running in sequences:
            self._of(running).read(running)
        return [np.array(self._of(running).index.tokens, np.int32) for running in sequences]

    def took_plain(self, sequences: Sequence[Running], longest: int, n_steps: int) -> None:
        """Compare the tokens of ``n_steps`` steps without drafts with drafts of at most ``longest`` tokens."""
        for running in sequences if not self._choice.is_fixed else ():
            own = self._of(running)
            own.n_rested += 1
            if own.n_rested >= own.rest:
                is_right = own.compare(running, longest, n_steps)
                own.n_rested, own.rest = 0, 1 if is_right else min(2 * own.rest, LONGEST_REST)

    def took(self, taken: Mapping[Running, Sequence[int]], plan: DraftPlan) -> None:
        """Record the numbers of tokens that each step of a submission with drafts gave, by sequence that goes on."""
        for running, numbers in taken.items():
            own = self._of(running)
            for n_tokens in numbers:
                own.rates.count(plan.n_drafted, n_tokens - 1)
            own.read(running)
            own.n_last = plan.n_steps

    def close(self, generation: Generation) -> None:
        """Forget a sequence."""
        self._sequences.pop(generation, None)

    def _of(self, running: Running) -> _Sequence:
        generation = running.generation
        if generation not in self._sequences:
            self._sequences[generation] = _Sequence(running.tables)
        return self._sequences[generation]
