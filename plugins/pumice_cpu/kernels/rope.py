"""Rotary position embeddings: angles once per step, then the rotation of every head."""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice_cpu.kernels.common import inline, load_up_to, part_start, store_up_to
from pumice_cpu.simd import bits_f32, fma, get_f64, get_i32, get_i64, negate_even, put_f32, spread_pairs, swap_pairs

TWO_OVER_PI = 0.6366197723675814
# pi/2 in two parts (Cody and Waite 1980); products of the short first part with a number of turns are exact
HALF_PI_HIGH, HALF_PI_LOW = 1.5707963267341256, 6.077100506506192e-11
ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer


@inline
def sine(r):
    """Sine for r in [-pi/4, pi/4], accurate to 1e-11."""
    z = r * r
    series = 1 / 6227020800.0
    series = series * z - 1 / 39916800.0
    series = series * z + 1 / 362880.0
    series = series * z - 1 / 5040.0
    series = series * z + 1 / 120.0
    series = series * z - 1 / 6.0
    return r + r * z * series


@inline
def cosine(r):
    """Cosine for r in [-pi/4, pi/4], accurate to 1e-11."""
    z = r * r
    series = 1 / 479001600.0
    series = series * z - 1 / 3628800.0
    series = series * z + 1 / 40320.0
    series = series * z - 1 / 720.0
    series = series * z + 1 / 24.0
    series = series * z - 0.5
    return 1.0 + z * series


def angles(thread, n_threads, count, positions, frequencies, cosines, sines, n_pairs, magnitude):
    """Compute cosine and sine of ``position * frequency``, times ``magnitude``: ``[count, n_pairs]`` each.

    ``frequencies`` and angles are float64: at position 100000 a float32 angle would be off by 1/100 radian.
    """
    total = get_i64(count) * n_pairs
    length = bits_f32(magnitude)
    for i in range(part_start(total, thread, n_threads), part_start(total, thread + 1, n_threads)):
        angle = get_i32(positions + 4 * (i // n_pairs)) * get_f64(frequencies + 8 * (i % n_pairs))
        turns = (angle * TWO_OVER_PI + ROUND) - ROUND
        r = (angle - turns * HALF_PI_HIGH) - turns * HALF_PI_LOW
        s, c = np.float32(sine(r)), np.float32(cosine(r))
        quarter = np.int64(turns) & 3
        if quarter & 1:
            s, c = c, s
        if quarter & 2:
            s = -s
        if quarter == 1 or quarter == 2:
            c = -c
        put_f32(cosines + 4 * i, c * length)
        put_f32(sines + 4 * i, s * length)


@inline
def turn_halves(x, y, cosines, sines, n_pairs):
    """Rotate pairs of values ``i`` and ``i + n_pairs``."""
    for i in range(0, n_pairs, 16):
        left = n_pairs - i
        c, s = load_up_to(cosines + 4 * i, left), load_up_to(sines + 4 * i, left)
        low, high = load_up_to(x + 4 * i, left), load_up_to(x + 4 * (i + n_pairs), left)
        store_up_to(y + 4 * i, low * c - high * s, left)
        store_up_to(y + 4 * (i + n_pairs), fma(low, s, high * c), left)


@inline
def turn_neighbours(x, y, cosines, sines, n_pairs):
    """Rotate pairs of values ``2 i`` and ``2 i + 1``."""
    for i in range(0, n_pairs, 8):
        left = n_pairs - i
        c, s = spread_pairs(load_up_to(cosines + 4 * i, left)), spread_pairs(load_up_to(sines + 4 * i, left))
        values = load_up_to(x + 8 * i, 2 * left)
        turned = fma(values, c, swap_pairs(values) * negate_even(s))
        store_up_to(y + 8 * i, turned, 2 * left)


def rotate(style: str) -> Any:
    """Return a kernel that rotates the first ``2 * n_pairs`` of ``width`` values of ``n_heads`` heads per token."""
    turn = {"neox": turn_halves, "normal": turn_neighbours}[style]

    def kernel(thread, n_threads, count, x, y, cosines, sines, n_heads, n_pairs, width):
        heads = get_i64(count) * n_heads
        for head in range(part_start(heads, thread, n_threads), part_start(heads, thread + 1, n_threads)):
            source, result = x + 4 * width * head, y + 4 * width * head
            angle = 4 * n_pairs * (head // n_heads)
            turn(source, result, cosines + angle, sines + angle, n_pairs)
            for i in range(2 * n_pairs, width, 16):
                store_up_to(result + 4 * i, load_up_to(source + 4 * i, width - i), width - i)

    return kernel
