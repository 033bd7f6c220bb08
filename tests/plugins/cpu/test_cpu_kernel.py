"""Compiling functions and calling them by address."""

from __future__ import annotations

import numpy as np
import pytest

from pumice_cpu.codegen import compile_kernel
from pumice_cpu.kernel import function_of, kernel, load_kernels
from pumice_cpu.runtime import ThreadPool, float_bits


def test_names_stand_for_functions_and_for_what_factories_return() -> None:
    from pumice_cpu.kernels import norms

    assert function_of("norms.rms_norm") is norms.rms_norm
    assert function_of("elementwise.unary:silu").__code__ is function_of("elementwise.unary:relu").__code__
    with pytest.raises(AttributeError):
        function_of("norms.nothing")


def test_kernels_are_loaded_once() -> None:
    first = kernel("rows.copy")
    both = load_kernels(["rows.copy", "rows.pick", "rows.copy"])
    assert list(both) == ["rows.copy", "rows.pick"]
    assert both["rows.copy"] is first
    assert first.parameters == ("count", "x", "y", "n_rows", "repeat", "width", "x_stride", "y_stride")


def test_tables_want_every_parameter() -> None:
    table = ThreadPool(1).new_table()
    with pytest.raises(TypeError, match="takes"):
        table.add(kernel("rows.copy"), count=0)


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_steps_run_in_order_on_any_number_of_threads(n_threads: int) -> None:
    """Each operation reads all that the one before wrote; also more threads than cores."""
    pool = ThreadPool(n_threads)
    width, steps = 4000, 50
    x, y, count = np.zeros(width, np.float32), np.zeros(width, np.float32), np.ones(1, np.int64)
    table = pool.new_table()
    one = float_bits(1.0)
    for source, result in [(x, y), (y, x)] * (steps // 2):
        places = {"count": count.ctypes.data, "x": source.ctypes.data, "y": result.ctypes.data}
        table.add(kernel("elementwise.unary:scale"), **places, width=width, p=one, q=one)
    for _ in range(20):
        pool.run(pool.new_table())  # nothing to do
        pool.run(table)
    pool.close()
    np.testing.assert_array_equal(x, np.full(width, 20 * steps))


def test_functions_that_numba_compiles_apart_are_refused() -> None:
    from numba import njit

    apart = njit(lambda x: x // 2)

    def half(thread, n_threads, x):
        apart(x)

    with pytest.raises(TypeError, match="kernel half calls what is not inlined"):
        compile_kernel(half, "half")
