"""Choose how many tokens a program drafts by itself, to verify them in the steps of one submission.

The program drafts the continuation of the longest match of the text's last tokens. The host compares what it would
have drafted with the tokens of steps without drafts, so it knows what drafts save before any are verified.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.engine.generation import Generation, Running
from pumice.engine.kv_cache import BlockTables
from pumice.proposers.index import Index

ASSUMED = {1: 1.6, 3: 2.0, 7: 2.6, 15: 3.6}
"""Time of a step by its drafted tokens, relative to a step without, until it is measured."""
SHORTEST = 2  # tokens of the shortest match; see shaders/verify.comp
KEPT = 9  # latest measurements of a kind
LATEST = 10  # drafts over which acceptance is averaged
BEYOND = 0.8  # probability of a token behind a draft that was right to its end
ENTERS, STAYS = 1.1, 1.02  # least expected speed with drafts, relative to steps without
LOSS = 0.005  # share of time that rejected drafts may take
START = 3.0  # initial credit for rejected drafts, in steps; a step of 16 tokens takes up to 3.6
MOST_SAVED = 16.0  # maximum credit from earlier gains, in steps
LONGEST_REST = 4  # maximum submissions without drafts per submission that is compared
LOOKED_AT = 16  # tokens that are compared at most


class Plan(NamedTuple):
    """The steps of a submission, and the tokens that each drafts; no steps: draft none."""

    n_drafted: int = 0
    n_steps: int = 0


NO_DRAFTS = Plan()


@dataclass(eq=False)
class _Sequence:
    """The text of a sequence, and what drafts of it are worth.

    Attributes:
        text: tokens of the context in a growing array, of which ``n_text`` are known.
        tables: blocks of the context; others hold another text.
        n_compared: generated tokens in ``index``, and the prompt if it is not negative.
        emitted: expected tokens of a step by its number of drafted tokens, of ``n_counted`` drafts.
        credit: steps that rejected drafts may take.
        n_last: steps of the latest submission with drafts; 0: it had none.
        rest, n_rested: submissions from one comparison to the next, and since the latest.
    """

    tables: BlockTables
    text: NDArray[np.int32]
    n_text: int = 0
    index: Index = field(default_factory=lambda: Index(SHORTEST))
    n_compared: int = -1
    emitted: dict[int, float] = field(default_factory=dict)
    n_counted: int = 0
    credit: float = START
    n_last: int = 0
    rest: int = 1
    n_rested: int = 0

    def update(self, running: Running) -> NDArray[np.int32]:
        """Return the tokens of the context."""
        tokens = running.generation.tokens
        if self.tables is not running.tables or self.n_text > len(tokens):
            self.tables, self.n_text = running.tables, 0
        if len(tokens) > len(self.text):
            larger = np.zeros(2 * len(tokens), np.int32)
            larger[: self.n_text] = self.text[: self.n_text]
            self.text = larger
        self.text[self.n_text : len(tokens)] = tokens[self.n_text :]
        self.n_text = len(tokens)
        return self.text[: self.n_text]

    def count(self, lengths: Sequence[int], n_drafted: int, n_accepted: int) -> None:
        """Count the accepted tokens of a draft of ``n_drafted`` tokens, for drafts of these lengths."""
        self.n_counted += 1
        weight = max(1 / (self.n_counted + 2), 1 / LATEST)
        for length in lengths:
            more = BEYOND * max(0, length - n_drafted) if n_accepted == n_drafted else 0.0
            emitted = 1 + min(n_accepted, length) + more
            self.emitted[length] = (1 - weight) * self.emitted.get(length, 1.0) + weight * emitted


class DeviceDrafts:
    """Plans submissions of a program that drafts by itself.

    Drafts are verified where they are expected to save time, by measured times and by what was accepted lately, and
    while wrong ones have not taken more than a small share of the time (``LOSS``), ``START`` steps, and what drafts
    saved. Unless the number of drafted tokens is ``fixed``.
    """

    def __init__(self, fixed: int = -1) -> None:
        self._fixed = fixed
        self._sequences: dict[Generation, _Sequence] = {}
        self._seconds: dict[int, deque[float]] = {}  # of a step with drafts, by their tokens
        self._plain: deque[float] = deque(maxlen=KEPT)  # of a step without drafts
        self._started: set[Plan] = set()  # plans whose kernels are compiled

    def plan(self, running: Running, lengths: Sequence[int], most: int) -> Plan:
        """Return the plan of the next submission.

        Args:
            running: the sequence.
            lengths: numbers of drafted tokens that the program offers, ascending.
            most: maximum steps of a submission.
        """
        limit = running.generation.request.n_draft
        fixed = self._fixed if limit is None else limit if self._fixed < 0 else min(limit, self._fixed)
        if self._fixed >= 0 or limit == 0:
            n_drafted = max((length for length in lengths if length <= fixed), default=0)
            return Plan(n_drafted, most) if n_drafted else NO_DRAFTS
        own = self._of(running)
        offered = [length for length in lengths if limit is None or length <= limit]
        offered = [length for length in offered if self._cost(length) - 1 <= own.credit]
        gains = {length: own.emitted.get(length, 1.0) / self._cost(length) for length in offered}
        best = max(gains, key=lambda length: gains[length], default=0)
        if not best or gains[best] < (STAYS if own.n_last else ENTERS) or not self._plain:
            own.n_last = 0
            return NO_DRAFTS
        n_affordable = int(own.credit / max(self._cost(best) - 1, 0.1))
        n_steps = min(max(1, 2 * own.n_last), n_affordable, most)
        return Plan(best, 1 << (n_steps.bit_length() - 1))

    def text(self, running: Running) -> NDArray[np.int32]:
        """Return the tokens of a sequence's context."""
        return self._of(running).update(running)

    def took_plain(self, running: Running, lengths: Sequence[int], n_steps: int, seconds: float) -> None:
        """Record steps without drafts, after their tokens, and compare these with drafts of them."""
        self._plain.append(seconds / n_steps)
        own = self._of(running)
        own.credit = min(own.credit + LOSS * n_steps, max(own.credit, START))
        own.n_rested += 1
        if self._fixed < 0 and own.n_rested >= own.rest:
            own.n_rested = 0
            self._compare(own, running.generation, lengths)
            pays = any(own.emitted.get(length, 1.0) > self._cost(length) for length in lengths)
            own.rest = 1 if pays else min(2 * own.rest, LONGEST_REST)

    def took(self, running: Running, lengths: Sequence[int], plan: Plan, taken: Sequence[int], seconds: float) -> None:
        """Record steps with drafts, and how many tokens each gave."""
        own = self._of(running)
        own.n_last = plan.n_steps
        for n_tokens in taken:
            own.count(lengths, plan.n_drafted, n_tokens - 1)
        if plan in self._started:
            self._seconds.setdefault(plan.n_drafted, deque(maxlen=KEPT)).append(seconds / plan.n_steps)
        self._started.add(plan)
        saved = sum(taken) - plan.n_steps * self._cost(plan.n_drafted)
        own.credit = min(own.credit + saved, MOST_SAVED)

    def close(self, generation: Generation) -> None:
        """Forget a sequence."""
        self._sequences.pop(generation, None)

    def _of(self, running: Running) -> _Sequence:
        generation = running.generation
        if generation not in self._sequences:
            self._sequences[generation] = _Sequence(running.tables, np.zeros(2 * len(generation.tokens), np.int32))
        return self._sequences[generation]

    def _cost(self, n_drafted: int) -> float:
        """Return the time of a step relative to one without drafts."""
        measured = self._seconds.get(n_drafted)
        if not measured or not self._plain:
            return ASSUMED.get(n_drafted, float(1 + n_drafted))
        return max(1.0, sorted(measured)[len(measured) // 2] / sorted(self._plain)[len(self._plain) // 2])

    @staticmethod
    def _compare(own: _Sequence, generation: Generation, lengths: Sequence[int]) -> None:
        """Compare the latest tokens with what would have been drafted, step by step."""
        generated, longest = generation.generated, lengths[-1]
        if own.n_compared < 0:
            own.index.extend(generation.spoken)
            own.n_compared = 0
        begin = max(own.n_compared, len(generated) - LOOKED_AT)
        own.index.extend(generated[own.n_compared : begin])
        while begin < len(generated):
            place, length = own.index.match(own.index.tokens)
            n_accepted, coming = 0, generated[begin : begin + longest]
            if length:
                period = len(own.index) - place
                draft = [own.index.tokens[place + i % period] for i in range(len(coming))]
                pairs = enumerate(zip(draft, coming, strict=True))
                n_accepted = next((i for i, (guess, token) in pairs if guess != token), len(coming))
            own.count(lengths, len(coming), n_accepted)
            step = generated[begin : begin + n_accepted + 1]
            own.index.extend(step)
            begin += len(step)
        own.n_compared = len(generated)
