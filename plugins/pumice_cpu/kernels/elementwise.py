"""Operations on each value for itself, and on two tensors of which the second may broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice_cpu.kernels.common import inline, load_up_to, part_start, store_up_to
from pumice_cpu.simd import (
    absolute,
    bits_f32,
    exp,
    fma,
    get_f32,
    get_i64,
    maximum,
    minimum,
    splat_f32,
    where_negative,
)

CHUNK = 1024  # values of a row that one thread computes at once


@inline
def number(value):
    return splat_f32(np.float32(value))


UNARY: dict[str, Any] = {}
BINARY: dict[str, Any] = {}


def of_one(function: Any) -> Any:
    """An operation on one value and two constants, which some have, under the function's name."""
    UNARY[function.__name__] = inline(function)
    return UNARY[function.__name__]


def of_two(function: Any) -> Any:
    """An operation on two values."""
    BINARY[function.__name__] = inline(function)
    return BINARY[function.__name__]


@of_one
def sigmoid(x, p, q):
    return number(1) / (number(1) + exp(number(0) - x))


@of_one
def silu(x, p, q):
    return x / (number(1) + exp(number(0) - x))


@of_one
def gelu(x, p, q):
    """``(1 + tanh(u)) / 2`` is the sigmoid of ``2 u``; u = sqrt(2/pi) (x + 0.044715 x^3)."""
    cubic = fma(number(0.044715) * x * x, x, x)
    return x / (number(1) + exp(number(-1.5957691216057308) * cubic))


@of_one
def relu(x, p, q):
    return maximum(x, number(0))


@of_one
def tanh(x, p, q):
    """Near zero, where the formula with e^x would lose digits, the Pade approximant of degrees 5 and 4."""
    z = x * x
    near = x * fma(z, z + number(105), number(945)) / fma(z, fma(z, number(15), number(420)), number(945))
    far = number(1) - number(2) / (exp(x + x) + number(1))
    return where_negative(absolute(x) - number(0.5), near, far)


@of_one
def softplus(x, p, q):
    """``max(x, 0) + ln(1 + e)`` for e = exp(-|x|); ln(1 + e) = 2 artanh(s), s = e / (2 + e) at most 1/3."""
    e = exp(number(0) - absolute(x))
    s = e / (e + number(2))
    z = s * s
    series = number(2 / 15)
    for coefficient in (2 / 13, 2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3, 2.0):
        series = fma(series, z, number(coefficient))
    return fma(series, s, maximum(x, number(0)))


@of_one
def scale(x, p, q):
    return x * splat_f32(p) + splat_f32(q)


@of_one
def clamp(x, p, q):
    return minimum(maximum(x, splat_f32(p)), splat_f32(q))


@of_two
def add(x, y):
    return x + y


@of_two
def mul(x, y):
    return x * y


@of_two
def div(x, y):
    return x / y


@of_two
def silu_mul(x, y):
    return silu(x, 0, 0) * y


@of_two
def gelu_mul(x, y):
    return gelu(x, 0, 0) * y


def unary(name: str) -> Any:
    """A kernel for ``y = f(x, p, q)`` over rows of ``width`` values; ``count`` is the address of the number of rows."""
    function = UNARY[name]

    def kernel(thread, n_threads, count, x, y, width, p, q):
        total = get_i64(count) * width
        vectors = (total + 15) // 16
        first, second = bits_f32(p), bits_f32(q)
        for i in range(part_start(vectors, thread, n_threads), part_start(vectors, thread + 1, n_threads)):
            left = total - 16 * i
            store_up_to(y + 64 * i, function(load_up_to(x + 64 * i, left), first, second), left)

    return kernel


def binary(name: str) -> Any:
    """A kernel for ``z = f(x, y)``, both with rows of ``width`` values."""
    function = BINARY[name]

    def kernel(thread, n_threads, count, x, y, z, width):
        total = get_i64(count) * width
        vectors = (total + 15) // 16
        for i in range(part_start(vectors, thread, n_threads), part_start(vectors, thread + 1, n_threads)):
            left = total - 16 * i
            store_up_to(z + 64 * i, function(load_up_to(x + 64 * i, left), load_up_to(y + 64 * i, left)), left)

    return kernel


def broadcast(name: str) -> Any:
    """A kernel for ``z = f(x, y)`` with x ``[count, n_a, n_b, width]``.

    ``y_token``, ``y_a``, ``y_b`` and ``y_value`` are how far y goes, in values, where x goes one further in each
    dimension; ``y_value`` is 0 or 1.
    """
    function = BINARY[name]

    def kernel(thread, n_threads, count, x, y, z, n_a, n_b, width, y_token, y_a, y_b, y_value):
        chunks = (width + CHUNK - 1) // CHUNK
        parts = get_i64(count) * n_a * n_b * chunks
        for part in range(part_start(parts, thread, n_threads), part_start(parts, thread + 1, n_threads)):
            row, first = part // chunks, CHUNK * (part % chunks)
            source = y + 4 * (row // (n_a * n_b) * y_token + row // n_b % n_a * y_a + row % n_b * y_b)
            end = first + CHUNK if first + CHUNK < width else width
            for i in range(first, end, 16):
                at = 4 * (row * width + i)
                left = width - i
                second = load_up_to(source + 4 * i, left) if y_value else splat_f32(get_f32(source))
                store_up_to(z + at, function(load_up_to(x + at, left), second), left)

    return kernel
