"""Threads of a step while other programs use the cores, by a simulated clock."""

from collections.abc import Callable
from typing import NamedTuple

from pumice_cpu.contention import PATIENCE, SETTLED, TRIAL, Pace


class Step(NamedTuple):
    seconds: float
    work: float = 0.0  # seconds of cores that all threads used


def run(pace: Pace, n: int, alone: Step, together: Callable[[int], Step], now: float = 0.0) -> list[bool]:
    """Whether each of n steps was run by one thread."""
    found = []
    for i in range(n):
        found.append(pace.choose(now))
        step = alone if found[-1] else together(i)
        now += step.seconds
        pace.took(found[-1], step.seconds, step.work, now)
    return found


def test_all_threads_run_steps_where_they_have_their_cores() -> None:
    """Steps of different lengths, and threads that are busy all the time."""
    found = run(Pace(2), 1000, Step(1.9), lambda i: Step(1 + 0.3 * (i % 3), work=2 * (1 + 0.3 * (i % 3))))
    assert not any(found)


def test_one_thread_is_quicker_where_others_have_no_cores() -> None:
    found = run(Pace(2), 20_000, Step(1.0), lambda _: Step(80.0, work=5.0))
    assert not any(found[:SETTLED])
    assert all(found[SETTLED:][:TRIAL]), "tried at once"
    together = found.count(False) - SETTLED
    assert 0 < together <= 20_000 / (PATIENCE * 80) + 1, "tried again, but seldom"


def test_steps_that_share_out_their_parts_stay_with_all_threads() -> None:
    """Each thread has half a core, but one would have no more than two thirds of one."""
    found = run(Pace(2), 2000, Step(150.0), lambda _: Step(100.0, work=90.0))
    assert found[-1] is False
    assert sum(found) / len(found) < 0.05


def test_all_threads_are_back_when_the_cores_are_free() -> None:
    pace = Pace(4)
    assert run(pace, 500, Step(1.0), lambda _: Step(80.0, work=5.0))[-1]
    found = run(pace, PATIENCE * 100, Step(1.0), lambda _: Step(0.3, work=1.2), now=1200.0)
    assert found.index(False) <= PATIENCE * 80 + TRIAL
    assert not any(found[-500:])
