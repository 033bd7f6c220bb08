"""A Metal kernel for products of few rows with matrices whose groups of 16 columns have own scales, such as Q6_K.

MLX's formats have a scale for 32 columns, so that composed of its operations such a product reads the codes twice
(weights.py). No Apple GPU was at hand when this was written: it is used only where a small product on the machine is
that of the composition.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from pumice_mlx.device import is_gpu
from pumice_mlx.kernel_checks import is_right

HALF = 16  # columns with a scale; 32 columns have `bits` words of codes
MOST_ROWS = 8  # rows of x up to which reading codes takes longer than multiplying them
LANES, SUBGROUPS = 32, 4  # invocations of a SIMD group, which computes a result, and SIMD groups of a threadgroup
NAMES = ["x", "codes", "scales0", "biases0", "scales1", "biases1"]

SOURCE = """
    const uint lane = thread_position_in_grid.x, row = thread_position_in_grid.y, token = thread_position_in_grid.z;
    float sum = 0;
    for (uint group = lane; group < GROUPS; group += 32) {
        const uint number = row * GROUPS + group;
        float dots[2] = {0, 0}, totals[2] = {0, 0};
        for (uint column = 0; column < 32; column++) {
            const uint bit = column * BITS, word = number * BITS + bit / 32, shift = bit % 32;
            uint code = codes[word] >> shift;
            if (shift + BITS > 32) code |= codes[word + 1] << (32 - shift);
            const float value = x[(token * GROUPS + group) * 32 + column];
            dots[column / 16] += value * float(code & ((1u << BITS) - 1));
            totals[column / 16] += value;
        }
        sum += dots[0] * float(scales0[number]) + totals[0] * float(biases0[number]);
        sum += dots[1] * float(scales1[number]) + totals[1] * float(biases1[number]);
    }
    sum = simd_sum(sum);
    if (lane == 0) y[token * ROWS + row] = sum;
"""

Product = Callable[[mx.array, mx.array, list[mx.array], int], mx.array]


@functools.cache
def _kernel() -> Any:
    return mx.fast.metal_kernel(name="pumice_halves", input_names=NAMES, output_names=["y"], source=SOURCE)


def multiply(x: mx.array, codes: mx.array, scales: list[mx.array], bits: int) -> mx.array:
    """Map rows ``x [t, k]`` to float32 ``[t, m]``; ``scales``: scales and biases of first halves, then of second ones.

    ``codes`` are words ``[m, k * bits / 32]``.
    """
    n_rows, n_tokens, n_groups = codes.shape[0], x.shape[0], x.shape[1] // (2 * HALF)
    template = [("GROUPS", n_groups), ("BITS", bits), ("ROWS", n_rows)]
    (y,) = _kernel()(
        inputs=[x, codes, *scales],
        template=template,
        grid=(LANES, n_rows, n_tokens),
        threadgroup=(LANES, SUBGROUPS, 1),
        output_shapes=[(n_tokens, n_rows)],
        output_dtypes=[mx.float32],
    )
    return y


@functools.cache
def product_for(bits: int, type: mx.Dtype, composed: Product) -> Product | None:
    """Return ``multiply`` where it is right on this machine: a random product is that of ``composed``, another way."""
    if not mx.metal.is_available() or not is_gpu():
        return None
    n_rows, n_groups, n_tokens = 38, 37, 3
    rng = np.random.default_rng(0)
    x = mx.array(rng.standard_normal((n_tokens, n_groups * 2 * HALF))).astype(type)
    codes = mx.array(rng.integers(0, 1 << 32, (n_rows, n_groups * bits), np.uint32))
    scales = [mx.array(rng.standard_normal((n_rows, n_groups))).astype(type) for _ in range(4)]

    def error() -> float:
        expected, actual = (np.array(product(x, codes, scales, bits)) for product in (composed, multiply))
        return float(np.abs(expected - actual).max() / np.abs(expected).max())

    return multiply if is_right(f"multiplies codes of {bits} bits", error, 1e-2) else None
