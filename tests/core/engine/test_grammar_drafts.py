"""Sequences with masks: found while a program computes, forced tokens read like a prompt, drafts verified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from drafting import PROPOSERS, Oracle
from guessing_programs import GREEDY, IDS, N_VOCAB, RANDOM, Behind, Cells, Picked, engine, request, restricted, run
from nightly import crossed
from pumice.backend.pick import Ahead, Ask
from pumice.backend.step import Pending, Step
from pumice.engine import Engine, Generation, Preparer, Request
from pumice.engine.drafts.speculation import Speculation
from pumice.sampler import MaskSampler, SamplerContext, mask
from pumice_samplers import SAMPLERS

Add = Callable[[Engine, Request], Generation]
PROMPTS = [[5], [7, 8, 9], [1, 2, 3, 4]]
pytestmark = pytest.mark.usefixtures("patient")


@dataclass
class Grammar(MaskSampler):
    """Each fourth token is any below ``width``, the others behind it follow from it, ``length`` tokens in all; 0: off.

    ``knows``: the forced tokens that it tells before masks are made.
    """

    length: int = 0
    width: int = 20
    knows: int = 1

    def start(self, context: SamplerContext) -> None:
        self.written: list[int] = []

    def accept(self, token: int) -> None:
        self.written.append(token)

    @property
    def answer(self) -> list[int]:
        return self.written[self.written.index(49) + 1 :]

    def mask(self) -> np.ndarray | None:
        if not self.length:
            return None
        answer = self.answer
        if len(answer) == self.length:
            return mask.from_tokens([], N_VOCAB)
        allowed = [answer[-1] + 1] if len(answer) % 4 else range(self.width)
        return mask.from_tokens(allowed, N_VOCAB)

    def forced(self) -> Sequence[int]:
        answer = self.answer
        left = min(-len(answer) % 4, self.length - len(answer), self.knows)
        return [answer[-1] + 1 + i for i in range(left)]

    def fork(self) -> Grammar:
        return deepcopy(self)


class Verifying(Behind):
    """Verifies drafts of the host, with a restriction for each row."""

    more: ClassVar[dict[str, Any]] = {**Behind.more, "drafted": (1, 3, 7), "drafted_rows": 16}
    n_verified = 0  # steps that verified drafts
    n_returned = 0  # steps that returned logits

    def submit(self, step: Step) -> Pending:
        if step.ask is None or not step.ask.n_drafted:
            self.n_returned += step.ask is None
            return super().submit(step)
        self.n_verified += 1
        return Picked(self.verified(step, step.ask))

    def verified(self, step: Step, ask: Ask) -> Ahead:
        rows, batch, n_rows = self.run(Step(step.batch))["logits"], step.batch, 1 + ask.n_drafted
        rows = [restricted(row, ask.restrictions[i]) if ask.restrictions else row for i, row in enumerate(rows)]
        ids = np.array([np.argsort(-row, kind="stable")[: ask.n_best] for row in rows], np.int32)
        logits = np.array([row[best] for row, best in zip(rows, ids, strict=True)])
        picked = np.zeros(len(rows), np.int32)
        taken = []
        for s, pick in enumerate(ask.picks):
            for row in range(s * n_rows, (s + 1) * n_rows):
                picked[row] = self.pick(pick, logits[row], ids[row], ask.numbers[0, row])
            own, drafts = picked[s * n_rows :][:n_rows], batch.tokens[s * n_rows + 1 :][: n_rows - 1]
            taken.append(1 + next((i for i, draft in enumerate(drafts) if own[i] != draft), n_rows - 1))
        return Ahead(ids[None], logits[None], picked[None], None, np.array([taken], np.int32))


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Add:
    """Adds a sequence, whose chain begins with the grammar."""
    monkeypatch.setitem(SAMPLERS, "grammar", Grammar)
    monkeypatch.setattr(Oracle, "texts", {})

    def added(made: Engine, each: Request) -> Generation:
        order = ["grammar", *(name for name in SAMPLERS if name != "grammar")]
        prepare = Preparer(made.limits.n_ctx, N_VOCAB, lambda: None, SAMPLERS, order, proposers=PROPOSERS)
        (generation,) = prepare.generations([next(IDS)], each)
        made.add(generation)
        return generation

    return added


def answers(add: Add, program: Cells, requests: list[Request], speculation: Speculation | None = None) -> list[Any]:
    made = engine(program, 256, speculation=speculation)
    generations = [add(made, each) for each in requests]
    run(made)
    for each, generation in zip(requests, generations, strict=True):
        if speculation is None:
            Oracle.texts = {**Oracle.texts, tuple(each.prompt): list(generation.generated)}
    return [(generation.generated, generation.finish_reason, generation.timings) for generation in generations]


@pytest.mark.parametrize(
    ("proposer", "sampling", "sizes"),
    crossed(["oracle", "erring", "liar", "ngram"], [GREEDY, RANDOM], [(1, 1), (3, 1), (1, 2), (3, 3)]),
)
def test_answers_are_as_without_drafts(
    add: Add, proposer: str, sampling: dict[str, Any], sizes: tuple[int, int]
) -> None:
    knows, n_seqs = sizes
    requests = [
        request([*prompt, 49], {**sampling, "length": length, "knows": knows}, 60)
        for prompt, length in zip(PROMPTS[:n_seqs], (33, 80, 17), strict=False)
    ]
    plain = answers(add, Behind(8), requests)
    program = Verifying(8)
    drafted = answers(add, program, requests, Speculation(PROPOSERS, default=proposer, n_draft=7))
    assert [item[:2] for item in drafted] == [item[:2] for item in plain]
    assert program.n_verified > 2
    if proposer == "oracle":
        assert all(item[2].n_accepted == item[2].n_drafted > 0 for item in drafted)


@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
def test_answers_with_dry_are_those_without_drafts(add: Add, sampling: dict[str, Any]) -> None:
    """Beside the grammar; biases behind drafted tokens are known before the step."""
    dry = {"dry_multiplier": 0.5, "dry_allowed_length": 1}
    asked = [request([*prompt, 49], {**sampling, **dry, "length": 50}, 60) for prompt in PROMPTS[:2]]
    plain, program = answers(add, Behind(8), asked), Verifying(8)
    drafted = answers(add, program, asked, Speculation(PROPOSERS, default="erring", n_draft=7))
    assert [item[:2] for item in drafted] == [item[:2] for item in plain]
    assert program.n_verified > 2


@pytest.mark.parametrize(
    "sampling", [GREEDY, RANDOM, {**RANDOM, "dry_multiplier": 2.0}], ids=["greedy", "random", "dry"]
)
@pytest.mark.parametrize(("length", "knows"), [(0, 0), (31, 0), (31, 3)])
def test_restrictions_are_found_during_the_computing(
    add: Add, sampling: dict[str, Any], length: int, knows: int
) -> None:
    """Tokens are those of the host's choice; steps are queued behind others until a mask forces several tokens."""
    asked = [
        request([*prompt, 49], {**sampling, "length": n, "knows": knows}, 60)
        for prompt, n in zip(PROMPTS, [length, 0, length], strict=True)
    ]
    program = Behind(8)
    assert [item[:2] for item in answers(add, program, asked)] == [item[:2] for item in answers(add, Cells(0), asked)]
    if length or "dry_multiplier" in sampling:
        assert any(len(asked) == 3 and asked[2] for asked in program.asked)


@pytest.mark.parametrize("steps", [0, 8])
@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
def test_forced_tokens_are_computed_like_a_prompt(add: Add, steps: int, sampling: dict[str, Any]) -> None:
    program = Cells(steps)
    [(generated, reason, _)] = answers(add, program, [request([7, 8, 49], {**sampling, "length": 40, "knows": 0}, 50)])
    assert (len(generated), reason) == (40, "stop")
    firsts = generated[::4]
    assert all(first < 20 for first in firsts)
    assert len(set(firsts)) > 1
    assert generated == [first + i for first in firsts for i in range(4)]
    assert len(program.asked) <= 1 + 10, "one step for four tokens"
