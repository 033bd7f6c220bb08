"""Numbers of tokens that a program drafts: gains and costs for texts with and without repetitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from guessing_programs import GREEDY, N_VOCAB, Behind, Picked, Timed, add, engine, request, run
from pumice.backend.pick import Ahead, Ask
from pumice.backend.step import Batch, Pending, Step
from pumice.engine.drafts.choice import DraftChoice, StepCosts
from pumice.engine.drafts.device_drafts import NO_DRAFTS, DeviceDrafts, DraftPlan
from pumice.engine.drafts.speculation import Speculation
from pumice.engine.loop.steps import context
from pumice.engine.requests.generation import Running
from pumice.proposers.ngram import Ngram

LENGTHS = (1, 3, 7, 15)
COSTS = {1: 1.5, 3: 1.8, 7: 2.2, 15: 3.4}
"""Seconds of a step by its drafted tokens; one without takes a second."""
SUBMITTING = 0.5  # seconds from one submission to the next, unless the next was submitted behind it
MOST = 16  # steps of a submission


class Facts(SimpleNamespace):
    """Attributes of what takes the place of a sequence."""

    __hash__ = object.__hash__


@dataclass
class Device:
    """A program that writes a given text, and drafts from it like shaders/verify.comp."""

    text: Sequence[int]
    n_prompt: int = 20
    n_draft: int | None = None
    seconds: float = 0.0
    plans: list[DraftPlan] = field(default_factory=list)

    def __post_init__(self) -> None:
        prompt = list(self.text[: self.n_prompt])
        request = SimpleNamespace(n_draft=self.n_draft)
        self.generation = Facts(tokens=prompt, spoken=tuple(prompt), generated=[], request=request)
        self.running = cast(Running, Facts(generation=self.generation, tables=object()))

    def write(self, drafts: DeviceDrafts) -> None:
        """Write the text in submissions."""
        while self.n_left:
            plan = drafts.plan([self.running], LENGTHS, MOST)
            self.plans.append(plan)
            if plan is NO_DRAFTS:
                self._write_plain(drafts)
                continue
            [tokens] = drafts.texts([self.running])
            assert tokens.tolist() == self.generation.tokens
            taken = [self.verified(plan.n_drafted) for _ in range(plan.n_steps)]
            self.seconds += plan.n_steps * COSTS[plan.n_drafted] + SUBMITTING
            drafts.took({self.running: taken}, plan)

    def _write_plain(self, drafts: DeviceDrafts) -> None:
        """Write in submissions without drafts, each behind the one before, whose tokens are not known yet."""
        n_steps = self._n_plain(drafts, 0)
        while n_steps:
            n_following = 0 if drafts.plan([self.running], LENGTHS, MOST).n_steps else self._n_plain(drafts, n_steps)
            self._take(n_steps)
            self.seconds += n_steps
            drafts.took_plain([self.running], LENGTHS[-1], n_steps)
            n_steps = n_following

    def _n_plain(self, drafts: DeviceDrafts, n_ahead: int) -> int:
        return min(self.n_left - n_ahead, MOST, 1 << drafts.most_plain([self.running]).bit_length() - 1)

    @property
    def n_left(self) -> int:
        return len(self.text) - len(self.generation.tokens)

    def _take(self, n: int) -> None:
        begin = len(self.generation.tokens)
        self.generation.tokens += self.text[begin : begin + n]
        self.generation.generated += self.text[begin : begin + n]

    def verified(self, n_drafted: int) -> int:
        """Continue with the tokens of a step with drafts, and return their number."""
        past = self.generation.tokens
        ends = [end for end in range(2, len(past)) if past[end - 2 : end] == past[-2:]]
        draft = _continued(past, max(ends, key=lambda end: _length(past, end))) if ends else []
        coming = self.text[len(past) : len(past) + n_drafted]
        pairs = enumerate(zip(coming, draft, strict=False))
        n = next((i for i, (token, guess) in pairs if token != guess), min(len(coming), len(draft)))
        n = min(n + 1, self.n_left)
        self._take(n)
        return n


def _length(text: Sequence[int], end: int) -> int:
    n = 0
    while n < min(end, 32) and text[end - 1 - n] == text[-1 - n]:
        n += 1
    return n


def _continued(text: Sequence[int], end: int) -> list[int]:
    period = len(text) - end
    return [text[end + i % period] for i in range(16)]


def device_drafts(costs: Mapping[int, float] = COSTS, n_draft: int = -1) -> DeviceDrafts:
    choice = DraftChoice(n_draft)
    choice.costs = StepCosts({1: 1.0, **{1 + n: seconds for n, seconds in costs.items()}})
    return DeviceDrafts(choice)


def speed(text: Sequence[int]) -> float:
    """Return the speed of writing a text, relative to that without drafts."""
    device = Device(text)
    device.write(device_drafts())
    return (len(text) - device.n_prompt) / device.seconds


RANDOM = np.random.default_rng(1).integers(1000, size=620).tolist()


def test_a_short_text_that_repeats_later_is_faster() -> None:
    assert speed(RANDOM[:80] + RANDOM[80:90] * 20) > 1.35


@pytest.mark.parametrize("seed", range(8))
def test_matches_that_mislead_cost_little(seed: int) -> None:
    """In texts of few tokens, of phrases in random order, and of phrases that come no more."""
    random = np.random.default_rng(seed)
    phrases = [random.integers(1000, size=random.integers(3, 24)).tolist() for _ in range(6)]
    mixed = [token for i in random.integers(6, size=80) for token in phrases[i]][:620]
    for text in (random.integers(5, size=620).tolist(), mixed, mixed[:200] + RANDOM[:420]):
        assert speed(text) > 0.97


@pytest.mark.parametrize(("limit", "longest"), [(0, 0), (4, 3), (3, 3)])
def test_a_request_limits_its_drafts(limit: int, longest: int) -> None:
    device = Device(RANDOM[:40] * 15, n_draft=limit)
    device.write(device_drafts())
    assert max(plan.n_drafted for plan in device.plans) == longest


class Drafting(Behind):
    """Writes a text, drafts from it like shaders/verify.comp, and takes a simulated time for its steps."""

    more: ClassVar[dict[str, Any]] = {**Behind.more, "drafted": LENGTHS}

    def __init__(self, text: Sequence[int]) -> None:
        super().__init__(MOST)
        self.text = text
        self.now = self.free = 0.0  # seconds: present, and end of the latest submission
        self.n_submissions = 0  # with drafts

    def logits(self, batch: Batch, s: int, token: int, position: int) -> np.ndarray:
        assert token == self.text[position]
        return np.eye(N_VOCAB, dtype=np.float32)[self.text[position + 1]]

    def submit(self, step: Step) -> Pending:
        ask = step.ask
        seconds = 1.0 if ask is None or not ask.n_drafted else COSTS[ask.n_drafted]
        self.now += SUBMITTING
        self.free = max(self.now, self.free) + seconds * (len(ask.numbers) if ask else 1)
        if ask is None or not ask.n_drafted:
            return Timed(super().submit(step), self, self.free)
        self.n_submissions += 1
        return Timed(Picked(self._verified(ask)), self, self.free)

    def _verified(self, ask: Ask) -> Ahead:
        [read] = ask.texts
        n_prompt, n_rows = len(read), 1 + ask.n_drafted
        device = Device([*self.text, *[0] * N_VOCAB], n_prompt)
        assert read.tolist() == self.text[:n_prompt]
        taken = [device.verified(ask.n_drafted) for _ in ask.numbers]
        picked = np.zeros((len(taken), n_rows), np.int32)
        begin = n_prompt
        for row, n in zip(picked, taken, strict=True):
            row[:n] = device.generation.tokens[begin : begin + n]
            begin += n
        return Ahead(
            picked[..., None], np.zeros((*picked.shape, 1), np.float32), picked, None, np.array(taken)[:, None]
        )


def seconds(monkeypatch: pytest.MonkeyPatch, text: Sequence[int], speculate: str) -> tuple[float, int]:
    """Return the simulated seconds of an engine that writes a text three times, and its submissions with drafts."""
    program = Drafting([*text, *[0] * (16 * MOST)])
    monkeypatch.setattr(context, "time", SimpleNamespace(perf_counter=lambda: program.now))
    speculation = Speculation({"ngram": Ngram}, default=speculate)
    speculation.choice.costs = StepCosts({1: 1.0, **{1 + n: cost for n, cost in COSTS.items()}})
    made = engine(program, 1024, n_seqs=1, lookahead=MOST, speculation=speculation)
    for _ in range(3):
        generation = add(made, request(text[:8], GREEDY, len(text) - 8))
        run(made)
        assert generation.generated == text[8:]
    return program.now, program.n_submissions


def test_an_engine_drafts_a_text_that_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it submits steps behind others whose tokens it does not know, and measures both kinds of steps."""
    text = [token % N_VOCAB for token in RANDOM[:25]] * 12
    without, _ = seconds(monkeypatch, text, "off")
    drafted, n_submissions = seconds(monkeypatch, text, "ngram")
    assert without / drafted > 1.8
    assert n_submissions > 6


def test_an_engine_loses_nothing_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    text = [token % N_VOCAB for token in RANDOM[:300]]
    without, _ = seconds(monkeypatch, text, "off")
    drafted, _ = seconds(monkeypatch, text, "ngram")
    assert without / drafted > 0.98
