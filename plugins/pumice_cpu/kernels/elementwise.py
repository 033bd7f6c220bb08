"""Operations on each value for itself, and on two tensors of one shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice_cpu.kernels.common import inline, part_start
from pumice_cpu.simd import exp, get_f32, get_i64, lane, load_f32, put_f32, splat_f32, store_f32


@inline
def silu(x):
    return x / (splat_f32(np.float32(1)) + exp(splat_f32(np.float32(0)) - x))


@inline
def add(x, y):
    return x + y


@inline
def mul(x, y):
    return x * y


@inline
def silu_mul(x, y):
    return silu(x) * y


_UNARY = {"silu": silu}
_BINARY = {"add": add, "mul": mul, "silu_mul": silu_mul}


def unary(name: str) -> Any:
    """A kernel for ``y = f(x)`` over rows of ``width`` values; ``count`` is the address of the number of rows."""
    function = _UNARY[name]

    def kernel(thread, n_threads, count, x, y, width):
        total = get_i64(count) * width
        vectors = total // 16
        for i in range(part_start(vectors, thread, n_threads), part_start(vectors, thread + 1, n_threads)):
            store_f32(y + 64 * i, function(load_f32(x + 64 * i)))
        if thread == n_threads - 1:
            for i in range(16 * vectors, total):
                put_f32(y + 4 * i, lane(function(splat_f32(get_f32(x + 4 * i))), 0))

    return kernel


def binary(name: str) -> Any:
    """A kernel for ``z = f(x, y)``, both with rows of ``width`` values."""
    function = _BINARY[name]

    def kernel(thread, n_threads, count, x, y, z, width):
        total = get_i64(count) * width
        vectors = total // 16
        for i in range(part_start(vectors, thread, n_threads), part_start(vectors, thread + 1, n_threads)):
            store_f32(z + 64 * i, function(load_f32(x + 64 * i), load_f32(y + 64 * i)))
        if thread == n_threads - 1:
            for i in range(16 * vectors, total):
                value = function(splat_f32(get_f32(x + 4 * i)), splat_f32(get_f32(y + 4 * i)))
                put_f32(z + 4 * i, lane(value, 0))

    return kernel
