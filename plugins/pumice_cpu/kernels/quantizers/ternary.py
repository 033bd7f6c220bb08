"""What IQ1_S and IQ1_M share: numbers as -1, 0 or 1, all an eighth higher or lower, eight of them a point of a grid.

The numbers of a group are sorted; the best two places where the digit changes are looked for among all.
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

# Places in the scratch memory, in bytes.
ORDER = AFTER  # 32 int32: numbers by size
SUMS_X = ORDER + 128  # of the sorted numbers up to each, 33 float32 and as many as a vector may read beyond
SUMS_W = SUMS_X + 256
SUMS_X_2 = SUMS_W + 256  # of the second eight of a group
SUMS_W_2 = SUMS_X_2 + 256
BEST = SUMS_W_2 + 256  # first place, second place, which shifts, of the best trial
CODES = BEST + 64  # 32 int32
SCALES = CODES + 128  # 16 float32
SHIFTS = SCALES + 64  # 16 int32
WEIGHTS = SHIFTS + 64  # 256 float32


@inline
def weigh(scratch, place, weights, column, n, sigma, weighted, keep):
    """Numbers and weights; the weights also to the address ``keep``."""
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
    """Numbers by size, equal ones in their order."""
    for i in range(n):
        x = get_f32(scratch + X + 4 * i)
        at = i
        while at > 0 and get_f32(scratch + X + 4 * get_i32(scratch + ORDER + 4 * at - 4)) > x:
            put_i32(scratch + ORDER + 4 * at, get_i32(scratch + ORDER + 4 * at - 4))
            at -= 1
        put_i32(scratch + ORDER + 4 * at, np.int32(i))


@inline
def add_up(scratch, n, first, end, sums_x, sums_w):
    """Sums of weight * number and of weights over the sorted numbers whose place is from ``first`` to ``end``."""
    x, w = np.float32(0), np.float32(0)
    put_f32(scratch + sums_x, x)
    put_f32(scratch + sums_w, w)
    for i in range(n):
        at = get_i32(scratch + ORDER + 4 * i)
        if first <= at < end:
            weight = get_f32(scratch + ROOT + 4 * at)
            x += weight * get_f32(scratch + X + 4 * at)
            w += weight
        put_f32(scratch + sums_x + 4 * i + 4, x)
        put_f32(scratch + sums_w + 4 * i + 4, w)


@inline
def put_digits(scratch, n, first, second, reverse):
    """0 before the first place, 1 before the second, 2 after it; reversed: 2, 1 and 0."""
    for i in range(n):
        digit = 0 if i < first else 1 if i < second else 2
        place = scratch + DIGITS + 4 * get_i32(scratch + ORDER + 4 * i)
        put_i32(place, np.int32(2 - digit if reverse else digit))


@inline
def value(scratch, code, i, shift):
    return np.float32((get_u8(get_i64(scratch + POINTS) + 8 * code + i) - 1) // 2 - 1) + shift


@inline
def nearest_code(scratch, piece, scale, shift):
    """The code of eight digits, or of the best point near them, and whether they had one."""
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
