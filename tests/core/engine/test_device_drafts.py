"""How many tokens a program drafts: what that saves and costs, for texts that repeat themselves and that do not."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from pumice.engine.device_drafts import NO_DRAFTS, START, DeviceDrafts, Plan
from pumice.engine.generation import Running

LENGTHS = (1, 3, 7, 15)
COSTS = {1: 1.5, 3: 1.8, 7: 2.2, 15: 3.4}
"""Seconds of a step by its drafted tokens; one without takes a second."""
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
    plans: list[Plan] = field(default_factory=list)

    def __post_init__(self) -> None:
        prompt = list(self.text[: self.n_prompt])
        request = SimpleNamespace(n_draft=self.n_draft)
        self.generation = Facts(tokens=prompt, spoken=tuple(prompt), generated=[], request=request)
        self.running = cast(Running, SimpleNamespace(generation=self.generation, tables=object()))

    def write(self, drafts: DeviceDrafts) -> None:
        """Write the text in submissions."""
        while self.n_left:
            plan = drafts.plan(self.running, LENGTHS, MOST)
            self.plans.append(plan)
            if plan is NO_DRAFTS:
                n_steps = min(MOST, self.n_left)
                self._take(n_steps)
                self.seconds += n_steps
                drafts.took_plain(self.running, LENGTHS, n_steps, float(n_steps))
                continue
            assert drafts.text(self.running).tolist() == self.generation.tokens
            taken = [self._verified(plan.n_drafted) for _ in range(plan.n_steps)]
            spent = plan.n_steps * COSTS[plan.n_drafted]
            self.seconds += spent
            drafts.took(self.running, LENGTHS, plan, taken, spent)

    @property
    def n_left(self) -> int:
        return len(self.text) - len(self.generation.tokens)

    def _take(self, n: int) -> None:
        begin = len(self.generation.tokens)
        self.generation.tokens += self.text[begin : begin + n]
        self.generation.generated += self.text[begin : begin + n]

    def _verified(self, n_drafted: int) -> int:
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


def speed(text: Sequence[int], **options: Any) -> float:
    """Return the speed of writing a text, relative to that without drafts."""
    device = Device(text, **options)
    device.write(DeviceDrafts())
    return (len(text) - device.n_prompt) / device.seconds


RANDOM = np.random.default_rng(1).integers(1000, size=620).tolist()


def test_a_text_that_repeats_is_faster() -> None:
    assert speed(RANDOM[:40] * 15) > 2.4


def test_a_text_that_does_not_is_as_fast() -> None:
    assert speed(RANDOM) == 1.0


@pytest.mark.parametrize("seed", range(8))
def test_matches_that_mislead_cost_little(seed: int) -> None:
    """In texts of few tokens, of phrases in random order, and of phrases that come no more."""
    random = np.random.default_rng(seed)
    phrases = [random.integers(1000, size=random.integers(3, 24)).tolist() for _ in range(6)]
    mixed = [token for i in random.integers(6, size=80) for token in phrases[i]][:620]
    for text in (random.integers(5, size=620).tolist(), mixed, mixed[:200] + RANDOM[:420]):
        assert speed(text) > 0.98


def test_measured_costs_count() -> None:
    """Steps with drafts that take longer than assumed are not worth it."""
    drafts = DeviceDrafts()
    for length in LENGTHS:
        for _ in range(2):  # the first time may include preparation
            device = Device(RANDOM[:40])
            drafts.took_plain(device.running, LENGTHS, 1, 1.0)
            drafts.took(device.running, LENGTHS, Plan(length, 1), [1], 20.0)
    device = Device(RANDOM[:40] * 15)
    device.write(drafts)
    assert set(device.plans) == {NO_DRAFTS}


@pytest.mark.parametrize(("limit", "longest"), [(0, 0), (4, 3), (3, 3)])
def test_a_request_limits_its_drafts(limit: int, longest: int) -> None:
    device = Device(RANDOM[:40] * 15, n_draft=limit)
    device.write(DeviceDrafts())
    assert max(plan.n_drafted for plan in device.plans) == longest


def test_a_fixed_number_is_always_verified() -> None:
    device = Device(RANDOM)
    device.write(DeviceDrafts(9))
    assert set(device.plans) == {Plan(7, MOST)}
    assert DeviceDrafts(0).plan(device.running, LENGTHS, MOST) == NO_DRAFTS


def test_wrong_drafts_take_what_others_saved_at_most() -> None:
    device = Device(RANDOM[:10] * 10 + RANDOM)
    device.write(DeviceDrafts())
    lost = [COSTS[plan.n_drafted] - 1 for plan in device.plans[-30:] if plan.n_drafted for _ in range(plan.n_steps)]
    assert sum(lost) <= START + 16
