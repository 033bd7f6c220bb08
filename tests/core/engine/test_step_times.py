"""Tokens of prompts in a step on a device that prepares steps of fixed sizes."""

from types import SimpleNamespace
from typing import Any

import pytest

from pumice.engine.loop.policy import FairPolicy
from pumice.engine.loop.step_times import StepTimes

SIZES = (32, 64, 128, 256, 512)
SECONDS = {32: 0.0065, 64: 0.008, 128: 0.0115, 256: 0.0165, 512: 0.032}  # llama-8b on an H100


def size_of(n_tokens: int) -> int:
    return next(size for size in SIZES if size >= n_tokens)


def test_the_slow_first_step_of_a_size_is_forgotten() -> None:
    times = StepTimes(SIZES)
    times.took(128, 0.010)
    times.took(512, 1.0)
    for _ in range(3):
        times.took(128, 0.010)
    assert times.largest(0.05, 1) == 512  # at most four times as long


@pytest.mark.parametrize(("slow", "most"), [(1, 0.05), (2, 0.0675), (4, 0.0675), (16, 0.11)])
def test_steps_are_full_and_take_about_the_limit(slow: int, most: float) -> None:
    policy = FairPolicy(0.05, step_sizes=SIZES)
    generating = [SimpleNamespace(pending=1, reads_on=False, priority=0, last_step=0, began=1.0) for _ in range(16)]
    reading: Any = SimpleNamespace(pending=10_000, reads_on=True, priority=0, last_step=0, began=None, admitted=0.0)
    reading.waits_since = float("inf")
    for sequence in generating:
        sequence.admitted = 0.0
    policy.took([(reading, 128)], slow * SECONDS[128])
    rates = []
    for _ in range(20):
        members = policy.share([*generating, reading], 512)
        n_tokens = sum(n for _, n in members)
        assert n_tokens == size_of(n_tokens)  # nothing is computed in vain
        seconds = slow * SECONDS[n_tokens]
        policy.took(members, seconds)
        rates.append((n_tokens, seconds))
    assert all(seconds <= most for _, seconds in rates[4:])
    assert len({n_tokens for n_tokens, _ in rates[4:]}) == 1
