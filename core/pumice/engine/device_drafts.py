"""Choose how many tokens a program drafts by itself, to verify them in the steps of one submission.

The program drafts the continuation of the longest match of the text's last tokens. The host compares what it would
have drafted with the tokens of steps without drafts, so it knows what drafts save before any are verified.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.engine.generation import Generation, Running
from pumice.engine.kv_cache import BlockTables
from pumice.proposers.index import Index

ASSUMED = {1: 1.7, 3: 2.8, 7: 3.0, 15: 3.5}
"""Time of a step by its drafted tokens, relative to a step without, until it is measured: as on an NVIDIA GPU."""
SHORTEST = 2  # tokens of the shortest match; see shaders/verify.comp
KEPT = 9  # latest measurements of a kind
LATEST = 8  # drafts over which acceptance is averaged
ENTERS, STAYS = 1.1, 1.05  # least expected speed with drafts, relative to steps without
LOSS = 0.007  # share of time that rejected drafts may take
START = 6.0  # initial credit for rejected drafts, in steps without drafts
MOST_SAVED = 40.0  # maximum credit from earlier gains, in steps
COMPARING = 0.01  # share of time that comparisons may take
LONGEST_REST = 4  # maximum submissions without drafts per submission that is compared
FIRST, N_FIRST = 8, 32  # steps of submissions among a text's first tokens, after which drafts may begin
BEGINS = 2  # steps of the first submission with drafts, if there is credit for them


class DraftPlan(NamedTuple):
    """The steps of a submission, and the tokens that each drafts; no steps: draft none."""

    n_drafted: int = 0
    n_steps: int = 0


NO_DRAFTS = DraftPlan()


@dataclass(eq=False)
class _Sequence:
    """The text of a sequence, and what drafts of it are worth.

    Attributes:
        tables: blocks of the context; others hold another text.
        index: tokens of the context, up to the latest comparison or submission with drafts.
        emitted: expected tokens of a step by its number of drafted tokens, of ``n_counted`` drafts.
        n_last: steps of the latest submission with drafts; 0: it had none, fewer than it had if they did not pay.
        rest, n_rested: submissions from one comparison to the next, and since the latest.
    """

    tables: BlockTables
    index: Index = field(default_factory=lambda: Index(SHORTEST))
    emitted: dict[int, float] = field(default_factory=dict)
    n_counted: int = 0
    n_last: int = 0
    rest: int = 1
    n_rested: int = 0

    def read(self, running: Running, n_left: int = 0) -> None:
        """Read the tokens of the context into the index, but for the last ``n_left``."""
        tokens = running.generation.tokens
        if self.tables is not running.tables or len(self.index) > len(tokens):
            self.tables, self.index = running.tables, Index(SHORTEST)
        self.index.extend(tokens[len(self.index) : len(tokens) - n_left])

    def compare(self, running: Running, lengths: Sequence[int], n_steps: int) -> None:
        """Compare the tokens of ``n_steps`` steps with what would have been drafted, step by step."""
        self.read(running, n_steps)
        tokens, index, longest = running.generation.tokens, self.index, lengths[-1]
        while (begin := len(index)) < len(tokens):
            place, length = index.match(index.tokens)
            n_accepted, coming = 0, tokens[begin : begin + longest]
            if length:
                period = begin - place
                draft = [index.tokens[place + i % period] for i in range(len(coming))]
                pairs = enumerate(zip(draft, coming, strict=True))
                n_accepted = next((i for i, (guess, token) in pairs if guess != token), len(coming))
            self.count(lengths, len(coming), n_accepted)
            index.extend(tokens[begin : begin + n_accepted + 1])

    def count(self, lengths: Sequence[int], n_drafted: int, n_accepted: int) -> None:
        """Count the accepted tokens of a draft of ``n_drafted`` tokens, for drafts of these lengths."""
        self.n_counted += 1
        weight = max(1 / (self.n_counted + 2), 1 / LATEST)
        for length in lengths:
            more = _beyond(n_accepted, length - n_drafted) if n_accepted == n_drafted < length else 0.0
            emitted = 1 + min(n_accepted, length) + more
            self.emitted[length] = (1 - weight) * self.emitted.get(length, 1.0) + weight * emitted


class _Costs:
    """Measured times of submissions with drafts, relative to those of steps without."""

    def __init__(self) -> None:
        self._seconds: dict[DraftPlan, deque[float]] = {}
        self._plain: deque[float] = deque(maxlen=KEPT)  # of a step without drafts
        self._started: set[DraftPlan] = set()  # plans whose kernels are compiled

    @property
    def is_measured(self) -> bool:
        """True if a step without drafts was measured."""
        return bool(self._plain)

    def took_plain(self, seconds: float) -> None:
        """Record the time of a step without drafts."""
        self._plain.append(seconds)

    def took(self, plan: DraftPlan, seconds: float) -> None:
        """Record the time of a submission with drafts, except the first of its kind."""
        if plan in self._started:
            self._seconds.setdefault(plan, deque(maxlen=KEPT)).append(seconds)
        self._started.add(plan)

    def of(self, plan: DraftPlan) -> float:
        """Return the steps without drafts that take as long as a submission.

        Submitting takes time, too, so that of fewer steps is an upper bound per step.
        """
        n_drafted, n_steps = plan
        measured = [other.n_steps for other in self._seconds if other.n_drafted == n_drafted]
        if not measured or not self._plain:
            longer = [plan for plan in self._seconds if plan.n_drafted > n_drafted and self._plain]
            assumed = ASSUMED.get(n_drafted, float(1 + n_drafted))
            return n_steps * min([assumed, *(self.of(plan) / plan.n_steps for plan in longer)])
        nearest = max((n for n in measured if n <= n_steps), default=min(measured))
        seconds = _median(self._seconds[DraftPlan(n_drafted, nearest)]) / nearest
        return n_steps * max(1.0, seconds / _median(self._plain))


class DeviceDrafts:
    """Plans submissions of a program that drafts by itself.

    Drafts are verified where they are expected to save time, by measured times and by what was accepted lately, and
    while wrong ones have not taken more than a small share of the time (``LOSS``), ``START`` steps, and what drafts
    saved. Unless the number of drafted tokens is ``fixed``.
    """

    def __init__(self, fixed: int = -1) -> None:
        self._fixed = fixed
        self._sequences: dict[Generation, _Sequence] = {}
        self._costs: defaultdict[int, _Costs] = defaultdict(_Costs)  # by the number of sequences
        self._credit = START  # steps that rejected drafts may take

    def plan(self, sequences: Sequence[Running], lengths: Sequence[int], most: int) -> DraftPlan:
        """Return the plan of the next submission, which drafts as many tokens for each of its sequences.

        Args:
            sequences: all sequences of the submission.
            lengths: numbers of drafted tokens that the program offers, ascending.
            most: maximum steps of a submission.
        """
        limits = [running.generation.request.n_draft for running in sequences]
        limit = min((limit for limit in limits if limit is not None), default=None)
        costs = self._costs[len(sequences)]
        fixed = self._fixed if limit is None else limit if self._fixed < 0 else min(limit, self._fixed)
        if self._fixed >= 0 or limit == 0:
            n_drafted = max((length for length in lengths if length <= fixed), default=0)
            return DraftPlan(n_drafted, most) if n_drafted else NO_DRAFTS
        owners = [self._of(running) for running in sequences]
        n_last = min(own.n_last for own in owners)
        offered = [length for length in lengths if limit is None or length <= limit]
        plans = [self._affordable(costs, length, min(max(BEGINS, 2 * n_last), most)) for length in offered]
        gains = {plan: _gain(costs, owners, plan.n_drafted, most) for plan in plans if plan.n_steps}
        best = max(gains, key=lambda plan: gains[plan], default=NO_DRAFTS)
        if not best.n_steps or not costs.is_measured or gains[best] < (STAYS if n_last else ENTERS):
            for own in owners:
                own.n_last = 0
            return NO_DRAFTS
        return best

    def goes_on(self, sequences: Sequence[Running], plan: DraftPlan, most: int) -> bool:
        """Return True if the steps of a plan may follow those of a submission with this plan, whose tokens are unknown.

        So they do once submissions with drafts have saved enough to have ``most`` steps, and while there is credit for
        wrong drafts of both.
        """
        if self._fixed >= 0:
            return True
        costs, n_both = self._costs[len(sequences)], 2 * plan.n_steps
        owners = [self._of(running) for running in sequences]
        if plan.n_steps < most or costs.of(plan._replace(n_steps=n_both)) - n_both > self._credit:
            return False
        return _gain(costs, owners, plan.n_drafted, most) >= STAYS

    def most_plain(self, sequences: Sequence[Running]) -> int:
        """Return the maximum steps of a submission without drafts: few at first, to find out soon what drafts save."""
        n_generated = min(len(running.generation.generated) for running in sequences)
        return FIRST if n_generated < N_FIRST else n_generated

    def texts(self, sequences: Sequence[Running]) -> list[NDArray[np.int32]]:
        """Return the tokens of each sequence's context."""
        for running in sequences:
            self._of(running).read(running)
        return [np.array(self._of(running).index.tokens, np.int32) for running in sequences]

    def took_plain(self, sequences: Sequence[Running], lengths: Sequence[int], n_steps: int, seconds: float) -> None:
        """Record steps without drafts, after their tokens, and compare these with drafts of them.

        Args:
            sequences: all sequences of the submission.
            lengths: numbers of drafted tokens that the program offers, ascending.
            n_steps: steps of the submission.
            seconds: time of a step.
        """
        costs = self._costs[len(sequences)]
        costs.took_plain(seconds)
        least = costs.of(DraftPlan(lengths[-1], 1))
        self._credit = min(self._credit + LOSS * n_steps, max(self._credit, START, least))
        for running in sequences if self._fixed < 0 else ():
            own = self._of(running)
            own.n_rested += 1
            if own.n_rested >= own.rest:
                own.n_rested, began = 0, time.thread_time()
                own.compare(running, lengths, n_steps)
                share = len(sequences) * (time.thread_time() - began) / (n_steps * seconds)
                own.rest = min(1 + int(share / COMPARING), LONGEST_REST)

    def took(
        self,
        taken: Mapping[Running, Sequence[int]],
        n_seqs: int,
        lengths: Sequence[int],
        plan: DraftPlan,
        seconds: float,
    ) -> None:
        """Record a submission with drafts.

        Args:
            taken: the numbers of tokens that its steps gave, after these tokens, by sequence that goes on.
            n_seqs: number of its sequences.
            lengths: numbers of drafted tokens that the program offers, ascending.
            plan: its plan.
            seconds: its time.
        """
        costs = self._costs[n_seqs]
        costs.took(plan, seconds)
        if not taken:
            return
        for running, numbers in taken.items():
            own = self._of(running)
            for n_tokens in numbers:
                own.count(lengths, plan.n_drafted, n_tokens - 1)
            own.read(running)
        saved = sum(map(sum, taken.values())) / len(taken) - costs.of(plan)
        for running in taken:  # the next one has twice as many
            self._of(running).n_last = plan.n_steps if saved > 0 else plan.n_steps // 4
        self._credit = min(self._credit + saved, MOST_SAVED)

    def close(self, generation: Generation) -> None:
        """Forget a sequence."""
        self._sequences.pop(generation, None)

    def _of(self, running: Running) -> _Sequence:
        generation = running.generation
        if generation not in self._sequences:
            self._sequences[generation] = _Sequence(running.tables)
        return self._sequences[generation]

    def _affordable(self, costs: _Costs, n_drafted: int, n_steps: int) -> DraftPlan:
        """Return the plan of ``n_steps`` steps, halved until there is credit for wrong drafts in all of them."""
        while n_steps and costs.of(DraftPlan(n_drafted, n_steps)) - n_steps > self._credit:
            n_steps //= 2
        return DraftPlan(n_drafted, n_steps)


def _gain(costs: _Costs, owners: Sequence[_Sequence], n_drafted: int, most: int) -> float:
    """Return the expected speed of many steps with drafts, relative to steps without."""
    emitted = sum(own.emitted.get(n_drafted, 1.0) for own in owners) / len(owners)
    return emitted * most / costs.of(DraftPlan(n_drafted, most))


def _beyond(n_right: int, n: int) -> float:
    """Return the expected right tokens among ``n`` behind ``n_right`` right ones, by Laplace's rule of succession."""
    p = (n_right + 1) / (n_right + 2)
    return p * (1 - p**n) / (1 - p)


def _median(values: deque[float]) -> float:
    return sorted(values)[len(values) // 2]
