"""Threads of a step while other programs use the cores, by a simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from pumice_cpu.contention import COLD, PATIENCE, SETTLED, TRIAL, Pace
from pumice_cpu.runtime import OperationTable, ThreadPool, float_bits


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


def test_the_first_steps_of_a_table_tell_nothing() -> None:
    """They are slow, and of the first the other threads' work is not known yet."""
    steps = [*[Step(50.0, work=40.0)] * COLD, Step(1, work=1), *[Step(1, work=2)] * 1000]
    found = run(Pace(2), 1000, Step(1.9), lambda i: steps[i])
    assert not any(found)


def test_one_thread_has_nobody_to_wait_for() -> None:
    assert all(run(Pace(1), 100, Step(1), lambda _: Step(0.1)))


def test_all_threads_run_steps_where_the_clock_must_not_choose() -> None:
    assert not any(run(Pace(2, adaptive=False), 1000, Step(1.0), lambda _: Step(80.0, work=5.0)))
    assert all(run(Pace(1, adaptive=False), 9, Step(1.0), lambda _: Step(80.0)))


def test_one_thread_is_quicker_where_others_have_no_cores() -> None:
    found = run(Pace(2), 20_000, Step(1.0), lambda _: Step(80.0, work=5.0))
    assert not any(found[:SETTLED])
    assert all(found[SETTLED:][:TRIAL]), "tried at once"
    together = found.count(False) - SETTLED
    assert 0 < together <= 20_000 / (PATIENCE * 80) + 1, "tried again, but seldom"


def test_a_thread_that_waits_on_a_core_of_its_own_seems_busy() -> None:
    """Now and then a step is not disturbed: so one thread would take twice as long as that."""
    found = run(Pace(2), 200, Step(2.0), lambda i: Step(1.0 if i == COLD else 30.0, work=60.0))
    assert sum(found) > 180


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


def test_steps_of_other_sizes_are_not_compared() -> None:
    """A prompt's steps take longer than a token's: no reason to think that threads wait for each other."""
    pool, width = ThreadPool(2), 1 << 16
    x, count, one = np.zeros(width, np.float32), np.ones(1, np.int64), float_bits(1.0)
    table = OperationTable()
    places = {"count": count.ctypes.data, "x": x.ctypes.data, "y": x.ctypes.data}
    table.add("elementwise.unary:scale", {**places, "width": width, "p": one, "q": one})
    paces = {size: pool._pace(table, size) for size in (1, 2, 3, 4, 300, 511, 512)}
    pool.run(table, 300)
    pool.close()
    assert len(set(map(id, paces.values()))) == 5
    assert paces[300] is paces[511]
    assert [pace._n_steps for pace in paces.values()] == [0, 0, 0, 0, 1, 1, 0]


@pytest.mark.parametrize("lucky", [1, TRIAL - 1])
def test_some_quick_steps_are_no_quicker_way(lucky: int) -> None:
    """Threads that happen to have their cores for fewer steps than a trial has."""
    pace, since = Pace(2), iter(range(10**6))
    assert run(pace, 50, Step(1.0), lambda _: Step(80.0, work=5.0))[-1]
    found = run(pace, 20_000, Step(1.0), lambda _: Step(0.5 if next(since) % 10 < lucky else 80.0), now=1e4)
    assert found.count(False) / len(found) < 0.02
