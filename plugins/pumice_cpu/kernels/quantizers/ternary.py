"""Functions shared by IQ1_S and IQ1_M: numbers as -1, 0 or 1, shifted by an eighth; eight of them are a grid point.

The numbers of a group are sorted, and all pairs of split points between digits are compared.
"""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.kernels.quantizers.grid import AFTER, DIGITS, POINTS, ROOT, X, best_neighbour, look_up
from pumice_cpu.simd import (
    get_f32,
    get_i32,
    get_i64,
    get_u8,
    load_f32,
    put_f32,
    put_i32,
    splat_f32,
    square_root,
    store_f32,
)

EIGHTH = np.float32(0.125)
LOWEST = np.float32(-3.4028234663852886e38)

# Offsets in the scratch memory, in bytes.
ORDER = AFTER  # 32 int32: numbers by size
SUMS_X = ORDER + 128  # prefix sums of the sorted numbers: 33 float32, padded for vector loads
SUMS_W = SUMS_X + 256
SUMS_X_2 = SUMS_W + 256  # for the second eight of a group
SUMS_W_2 = SUMS_X_2 + 256
BEST = SUMS_W_2 + 256  # first split, second split and shifts of the best trial
CODES = BEST + 64  # 32 int32
SCALES = CODES + 128  # 16 float32
SHIFTS = SCALES + 64  # 16 int32
WEIGHTS = SHIFTS + 64  # 256 float32


@inline
def weigh(scratch, place, weights, column, n, sigma, weighted, keep):
    """Load numbers and weights; store the weights to the address ``keep``, too."""
    for part in range(n // 16):
        x = load_f32(place + 64 * part)
        w = x * x
        if weighted:
            w = load_f32(weights + 4 * column + 64 * part) * square_root(splat_f32(sigma) + w)
        store_f32(scratch + X + 64 * part, x)
        store_f32(scratch + ROOT + 64 * part, w)
        store_f32(keep + 64 * part, w)


@inline
def is_small(scratch, n, smallest):
    small = True
    for i in range(n):
        small = small and abs(get_f32(scratch + X + 4 * i)) < smallest
    return small


@inline
def sort(scratch, n):
    """Sort indices by value, stably."""
    for i in range(n):
        x = get_f32(scratch + X + 4 * i)
        slot = i
        while slot > 0 and get_f32(scratch + X + 4 * get_i32(scratch + ORDER + 4 * slot - 4)) > x:
            put_i32(scratch + ORDER + 4 * slot, get_i32(scratch + ORDER + 4 * slot - 4))
            slot -= 1
        put_i32(scratch + ORDER + 4 * slot, np.int32(i))


@inline
def add_up(scratch, n, first, end, sums_x, sums_w):
    """Store prefix sums of weight * number and of weights over the sorted numbers with index ``first`` to ``end``."""
    x, w = np.float32(0), np.float32(0)
    put_f32(scratch + sums_x, x)
    put_f32(scratch + sums_w, w)
    for i in range(n):
        index = get_i32(scratch + ORDER + 4 * i)
        if first <= index < end:
            weight = get_f32(scratch + ROOT + 4 * index)
            x += weight * get_f32(scratch + X + 4 * index)
            w += weight
        put_f32(scratch + sums_x + 4 * i + 4, x)
        put_f32(scratch + sums_w + 4 * i + 4, w)


@inline
def put_digits(scratch, n, first, second, reverse):
    """Set digit 0 before the first split, 1 before the second, 2 after it; 2, 1 and 0 if reversed."""
    for i in range(n):
        digit = 0 if i < first else 1 if i < second else 2
        place = scratch + DIGITS + 4 * get_i32(scratch + ORDER + 4 * i)
        put_i32(place, np.int32(2 - digit if reverse else digit))


@inline
def value(scratch, code, i, shift):
    return np.float32((get_u8(get_i64(scratch + POINTS) + 8 * code + i) - 1) // 2 - 1) + shift


@inline
def nearest_code(scratch, piece, scale, shift):
    """Return the code of eight digits, or of the nearest grid point, and whether the digits were on the grid."""
    code = look_up(scratch, 8 * piece, 8, 2)
    if code >= 0:
        return code, True
    factor, offset = np.float32(0.5), shift - np.float32(1.5)
    return best_neighbour(scratch, -1 - code, 8 * piece, 8, scale, factor, offset), False


@inline
def add_fit(scratch, code, piece, shift, sum_qx, sum_q2):
    for i in range(8):
        q, w = value(scratch, code, i, shift), get_f32(scratch + ROOT + 4 * (8 * piece + i))
        sum_qx += w * q * get_f32(scratch + X + 4 * (8 * piece + i))
        sum_q2 += w * q * q
    return sum_qx, sum_q2


@inline
def better(qx, q2, best):
    return (q2 > splat_f32(np.float32(0))) & (qx * qx > splat_f32(best) * q2)
