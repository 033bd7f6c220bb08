"""Element-wise operations of one tensor, and of two tensors of which the second may broadcast."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pumice.plugin.unstable import ELEMENTWISE
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
    square_root,
    where_negative,
    whole,
)

CHUNK = 1024  # values per item of work


@inline
def number(value):
    return splat_f32(np.float32(value))


@inline
def sin(x):
    """Subtract a multiple of pi in three parts (Cody and Waite 1980), and sum the series up to the 11th power."""
    n = whole(x * number(1 / math.pi))
    r = fma(n, number(-3.140625), x)
    r = fma(n, number(-0.0009675025939941406), r)
    r = fma(n, number(-1.5099580252808664e-07), r)
    z = r * r
    series = number(-1 / 39916800)
    for coefficient in (1 / 362880, -1 / 5040, 1 / 120, -1 / 6):
        series = fma(series, z, number(coefficient))
    odd = n - number(2) * whole(n * number(0.5))
    return fma(r * z, series, r) * (number(1) - number(2) * odd * odd)


@inline
def tanh(x):
    """Near zero use the Padé approximant of degrees 5 and 4, since the formula with e^x loses digits there."""
    z = x * x
    near = x * fma(z, z + number(105), number(945)) / fma(z, fma(z, number(15), number(420)), number(945))
    far = number(1) - number(2) / (exp(x + x) + number(1))
    return where_negative(absolute(x) - number(0.5), near, far)


@inline
def log_beyond_one(e, added):
    """Return ``ln(1 + e) + added`` for e from 0 to 1, as 2 artanh(s) with s = e / (2 + e), at most 1/3."""
    s = e / (e + number(2))
    z = s * s
    series = number(2 / 15)
    for coefficient in (2 / 13, 2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3, 2.0):
        series = fma(series, z, number(coefficient))
    return fma(series, s, added)


@inline
def softplus(x):
    """``max(x, 0) + ln(1 + exp(-|x|))``."""
    return log_beyond_one(exp(number(0) - absolute(x)), maximum(x, number(0)))


#: The vector operation of each function of formulas.
FUNCTIONS = {
    "maximum": maximum,
    "minimum": minimum,
    "exp": exp,
    "sqrt": square_root,
    "sin": sin,
    "tanh": tanh,
    "softplus": softplus,
}
OPERATORS = {"add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "div": "({} / {})"}
PYTHON: dict[str, Callable[..., str]] = {
    **{name: pattern.format for name, pattern in OPERATORS.items()},
    **{name: lambda *arguments, name=name: f"{name}({', '.join(arguments)})" for name in FUNCTIONS},
}


@functools.cache
def of_formula(name: str) -> Any:
    """Compile a formula to a function of one vector and the constants p and q, or of two vectors."""
    operation = ELEMENTWISE[name]
    assert operation.formula is not None
    operands, parameters = ("x", "y")[: len(operation.operands)], ("p", "q")
    names = {
        **dict(zip(operation.operands, operands, strict=True)),
        **{attribute: f"splat_f32({p})" for attribute, p in zip(operation.attributes, parameters, strict=False)},
    }
    text = operation.formula.fold(names, "number({!r})".format, PYTHON)
    arguments = operands if len(operands) == 2 else (*operands, *parameters)
    defined: dict[str, Any] = {**FUNCTIONS, "number": number, "splat_f32": splat_f32}
    exec(f"def function({', '.join(arguments)}): return {text}", defined)
    return inline(defined["function"])


def unary(name: str) -> Any:
    """Return a kernel for ``y = f(x, p, q)`` over rows of ``width`` values; ``count``: address of their number."""
    function = of_formula(name)

    def kernel(thread, n_threads, count, x, y, width, p, q):
        total = get_i64(count) * width
        vectors = (total + 15) // 16
        first, second = bits_f32(p), bits_f32(q)
        for i in range(part_start(vectors, thread, n_threads), part_start(vectors, thread + 1, n_threads)):
            left = total - 16 * i
            store_up_to(y + 64 * i, function(load_up_to(x + 64 * i, left), first, second), left)

    return kernel


def binary(name: str) -> Any:
    """Return a kernel for ``z = f(x, y)``, both with rows of ``width`` values."""
    function = of_formula(name)

    def kernel(thread, n_threads, count, x, y, z, width):
        total = get_i64(count) * width
        vectors = (total + 15) // 16
        for i in range(part_start(vectors, thread, n_threads), part_start(vectors, thread + 1, n_threads)):
            left = total - 16 * i
            store_up_to(z + 64 * i, function(load_up_to(x + 64 * i, left), load_up_to(y + 64 * i, left)), left)

    return kernel


def broadcast(name: str) -> Any:
    """Return a kernel for ``z = f(x, y)`` with x ``[count, n_a, n_b, width]``.

    ``y_row``, ``y_a``, ``y_b`` and ``y_value`` are the strides of y in values along the dimensions of x; ``y_value`` is
    0 or 1.
    """
    function = of_formula(name)

    def kernel(thread, n_threads, count, x, y, z, n_a, n_b, width, y_row, y_a, y_b, y_value):
        chunks = (width + CHUNK - 1) // CHUNK
        parts = get_i64(count) * n_a * n_b * chunks
        for part in range(part_start(parts, thread, n_threads), part_start(parts, thread + 1, n_threads)):
            row, first = part // chunks, CHUNK * (part % chunks)
            source = y + 4 * (row // (n_a * n_b) * y_row + row // n_b % n_a * y_a + row % n_b * y_b)
            end = first + CHUNK if first + CHUNK < width else width
            for i in range(first, end, 16):
                offset = 4 * (row * width + i)
                left = width - i
                second = load_up_to(source + 4 * i, left) if y_value else splat_f32(get_f32(source))
                store_up_to(z + offset, function(load_up_to(x + offset, left), second), left)

    return kernel
