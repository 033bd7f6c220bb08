"""Limits of time in tests, which are those of a reference processor."""

import asyncio

import pytest

import loop_monitor
import waiting
from loop_monitor import monitored


class Clock:
    """A processor on which each reading of the clock is some seconds later."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.now = seconds, 0.0

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


@pytest.mark.parametrize("factor", [1, 3, 50])
def test_slow_processors_have_more_time(monkeypatch: pytest.MonkeyPatch, factor: int) -> None:
    monkeypatch.setattr(waiting, "thread_time", Clock(waiting.REFERENCE * factor))
    assert waiting.slowness() == pytest.approx(factor)
    assert waiting.seconds_of(lambda: None, 1e-9 + waiting.REFERENCE) == pytest.approx(waiting.REFERENCE)


def test_fast_processors_have_no_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "thread_time", Clock(waiting.REFERENCE / 10))
    assert waiting.slowness() == 1


def test_callbacks_of_slow_processors_have_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing() -> None:
        return None

    monkeypatch.setattr(loop_monitor, "thread_time", Clock(0.03))
    for factor, is_held in ((1, True), (10, False)):
        monkeypatch.setattr(loop_monitor, "slowness", lambda factor=factor: factor)
        with monitored() as held:
            asyncio.run(nothing())
        assert bool(held) is is_held
