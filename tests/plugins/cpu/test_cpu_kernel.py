"""Compiling functions and calling them by address."""

import os
import threading

import numpy as np
import pytest

from pumice.plugin import BackendError
from pumice_cpu import kernel
from pumice_cpu.cache import CompiledKernel
from pumice_cpu.codegen import function_source, kernel_source, object_file, parameters
from pumice_cpu.compiler import symbol
from pumice_cpu.runtime import POOLS, OperationTable, ThreadPool, float_bits, kernel_function
from waiting import PATIENCE


def counting(x: np.ndarray, y: np.ndarray, count: np.ndarray, steps: int) -> OperationTable:
    """Operations that each read one row and write the other, greater by 1; the last writes ``x``."""
    table, one = OperationTable(), float_bits(1.0)
    for source, result in [(x, y), (y, x)] * (steps // 2):
        places = {"count": count.ctypes.data, "x": source.ctypes.data, "y": result.ctypes.data}
        table.add("elementwise.unary:scale", {**places, "width": len(x), "p": one, "q": one})
    return table


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_steps_run_in_order_on_any_number_of_threads(n_threads: int) -> None:
    """Each operation reads all that the one before wrote; also more threads than cores."""
    pool, width, steps = ThreadPool(n_threads), 4000, 50
    (x, y), count = np.zeros((2, width), np.float32), np.ones(1, np.int64)
    table = counting(x, y, count, steps)
    for _ in range(20):
        pool.run(OperationTable())  # nothing to do
        pool.run(table)
    pool.close()
    np.testing.assert_array_equal(x, np.full(width, 20 * steps))


@pytest.mark.parametrize("method", ["_start", "_run"])
def test_an_interrupted_step_leaves_no_thread_waiting(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Ctrl-C while weights are packed comes before the thread's own part of a step, or after it."""
    monkeypatch.setattr("pumice_cpu.contention.Pace.choose", lambda self, now: False)
    pool, width = ThreadPool(3), 4000
    (x, y), count = np.zeros((2, width), np.float32), np.ones(1, np.int64)
    table = counting(x, y, count, 10)
    pool.run(table)
    call = getattr(pool, method)

    def interrupt(*arguments: int) -> None:
        monkeypatch.setattr(pool, method, call)
        call(*arguments)
        raise KeyboardInterrupt

    for _ in range(20):
        monkeypatch.setattr(pool, method, interrupt)
        with pytest.raises(KeyboardInterrupt):
            pool.run(table)
    closing = threading.Thread(target=pool.close, daemon=True)
    closing.start()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    np.testing.assert_array_equal(x, np.full(width, 210))


def test_operations_alongside_others_are_all_done_before_the_next_that_waits() -> None:
    pool, width = ThreadPool(3), 5000
    x, y, count = np.ones(width, np.float32), np.zeros((4, width), np.float32), np.ones(1, np.int64)
    total = np.zeros(width, np.float32)
    table, two = OperationTable(), float_bits(2.0)
    for i, row in enumerate(y):
        places = {"count": count.ctypes.data, "x": x.ctypes.data, "y": row.ctypes.data}
        table.add("elementwise.unary:scale", {**places, "width": width, "p": two, "q": two}, alongside=i > 0)
    places = {"count": count.ctypes.data, "x": y.ctypes.data, "y": total.ctypes.data}
    table.add("rows.sum_rows", {**places, "n_rows": 1, "n_added": 4, "width": width})
    for _ in range(50):
        y[:] = 0
        pool.run(table)
        np.testing.assert_array_equal(total, np.full(width, 16.0))
    pool.close()


def test_a_short_step_runs_between_the_parts_of_a_long_one() -> None:
    pool, width, steps = ThreadPool(2), 50_000, 3200
    (x, y), count = np.zeros((2, width), np.float32), np.ones(1, np.int64)
    long, n_runs = counting(x, y, count, steps), 0
    (short_x, short_y), was_between = np.zeros((2, 8), np.float32), False
    short = counting(short_x, short_y, count, 2)
    while not was_between and n_runs < 20:
        running = threading.Thread(target=pool.run, args=(long, 512))
        running.start()
        while running.is_alive() and not y.max() > n_runs * steps:  # it has begun
            pass
        pool.run(short)
        was_between = x.max() < (n_runs + 1) * steps
        running.join(PATIENCE)
        n_runs += 1
    pool.close()
    assert was_between
    np.testing.assert_array_equal(x, np.full(width, n_runs * steps))
    np.testing.assert_array_equal(short_x, np.full(8, 2 * n_runs))


def test_backends_share_threads_until_the_last_is_closed() -> None:
    pool, other = POOLS.take(3, False), POOLS.take(2, False)
    assert other is not pool is POOLS.take(3, False)
    (x, y), count = np.zeros((2, 8), np.float32), np.ones(1, np.int64)
    table = counting(x, y, count, 2)
    POOLS.give_back(other)
    POOLS.give_back(pool)
    pool.run(table)
    POOLS.give_back(pool)
    with pytest.raises(BackendError, match="closed"):
        pool.run(table)
    again = POOLS.take(3, False)
    assert again is not pool
    POOLS.give_back(again)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_has_threads_of_its_own() -> None:
    pool, (x, y), count = POOLS.take(2, False), np.zeros((2, 8), np.float32), np.ones(1, np.int64)
    table = counting(x, y, count, 2)
    pool.run(table)
    if (child := os.fork()) == 0:
        try:
            POOLS.take(2, False).run(table)
        finally:
            os._exit(not np.array_equal(x, np.full(8, 4)))
    assert os.waitpid(child, 0)[1] == 0
    POOLS.give_back(pool)


def test_functions_that_numba_compiles_apart_are_refused() -> None:
    from numba import njit

    apart = njit(lambda x: x // 2)

    def half(thread, n_threads, x):
        apart(x)

    with pytest.raises(TypeError, match="kernel half calls functions that are not inlined"):
        kernel_source(half, "half")


def test_a_thread_that_does_not_start_leaves_a_pool_that_starts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, (x, y), count = ThreadPool(3), np.zeros((2, 8), np.float32), np.ones(1, np.int64)
    table, before = counting(x, y, count, 2), set(threading.enumerate())
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "pumice-cpu-2":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(BackendError, match=r"cpu: 2 of 3 threads started .*; set cpu.threads to fewer"):
            pool.run(table)
    assert set(threading.enumerate()) <= before
    pool.run(table)
    pool.close()
    np.testing.assert_array_equal(x, np.full(8, 2))
    with pytest.raises(BackendError, match="closed"):
        pool.run(table)


def test_exponentials_are_never_subnormal() -> None:
    """Subnormal numbers, and products of weights with values that are, would slow Intel's processors down."""
    from pumice_cpu.simd import exp, load_f32, power_of_two, store_f32

    def exponentials(x, powers, results):
        store_f32(powers, power_of_two(load_f32(x)))
        store_f32(results, exp(load_f32(x)))

    code = object_file(function_source(exponentials, symbol("exponentials")))
    kernel._link({"exponentials": CompiledKernel(parameters(exponentials), code)})
    x = -np.array([0, 0.3, 1, 9, 79.5, 80, 80.5, 87.3, 87.33, 87.34, 88, 100, 126, 1e4, 1e30, 3e38], np.float32)
    powers, results = np.zeros((2, 16), np.float32)
    kernel_function(kernel._loaded.pop("exponentials"))(x.ctypes.data, powers.ctypes.data, results.ctypes.data)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(powers, 2.0 ** np.maximum(exact, -80), rtol=2e-7)
    np.testing.assert_allclose(results, np.exp(np.maximum(exact, float(np.float32(-87.33653)))), rtol=3e-7)
    assert results.min() >= np.finfo(np.float32).tiny
