"""IQ1_S: groups of 32 numbers with a scale and one shift by an eighth."""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.kernels.quantizers.scales import largest, odd_code
from pumice_cpu.kernels.quantizers.ternary import (
    BEST,
    CODES,
    EIGHTH,
    LOWEST,
    SCALES,
    SHIFTS,
    SUMS_W,
    SUMS_X,
    WEIGHTS,
    add_fit,
    add_up,
    better,
    is_small,
    nearest_code,
    put_digits,
    sort,
    weigh,
)
from pumice_cpu.simd import (
    any_lane,
    get_f32,
    get_i32,
    lane,
    load_f32,
    put_f16,
    put_f32,
    put_i32,
    put_u8,
    put_u16,
    splat_f32,
)


def iq1_s(kind):
    """8 groups of 32, each with one shift."""

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        for block in range(n_blocks):
            sigma = np.float32(2) * get_f32(sums + 4 * block) / np.float32(256)
            for group in range(8):
                place, column = values + 1024 * block + 128 * group, 256 * block % n_columns + 32 * group
                weigh(scratch, place, weights, column, 32, sigma, True, scratch + WEIGHTS)
                _fit_iq1_s(scratch, group)
            _put_iq1_s(scratch, out + 50 * block)

    return quantize


@inline
def _fit_iq1_s(scratch, group):
    scale, shift = np.float32(0), EIGHTH
    if is_small(scratch, 32, np.float32(1e-12)):
        for piece in range(4):
            put_i32(scratch + CODES + 4 * (4 * group + piece), np.int32(0))
    else:
        sort(scratch, 32)
        add_up(scratch, 32, 0, 32, SUMS_X, SUMS_W)
        scale = _best_places(scratch)
        shift = EIGHTH if get_i32(scratch + BEST + 8) == 0 else -EIGHTH
        put_digits(scratch, 32, get_i32(scratch + BEST), get_i32(scratch + BEST + 4), scale < np.float32(0))
        if scale < np.float32(0):
            scale, shift = -scale, -shift
        sum_qx, sum_q2, all_on_grid = np.float32(0), np.float32(0), True
        for piece in range(4):
            code, on_grid = nearest_code(scratch, piece, scale, shift)
            all_on_grid = all_on_grid and on_grid
            put_i32(scratch + CODES + 4 * (4 * group + piece), code)
            sum_qx, sum_q2 = add_fit(scratch, code, piece, shift, sum_qx, sum_q2)
        if not all_on_grid and sum_qx > np.float32(0) and sum_q2 > np.float32(0):
            scale = sum_qx / sum_q2
    put_f32(scratch + SCALES + 4 * group, scale)
    put_i32(scratch + SHIFTS + 4 * group, np.int32(0 if shift > np.float32(0) else 1))


@inline
def _line(first, end, total, shift):
    """Return the sum of digit times weighted sum of the digit's numbers, for sums up to each second split."""
    low, middle, high = shift - np.float32(1), shift, shift + np.float32(1)
    before = splat_f32(first * low)
    return before + (end - splat_f32(first)) * splat_f32(middle) + (splat_f32(total) - end) * splat_f32(high)


@inline
def _square(first, end, total, shift):
    """Like ``_line``, with squares of the digits' values."""
    low, middle, high = shift - np.float32(1), shift, shift + np.float32(1)
    before = splat_f32(first * low * low)
    between = (end - splat_f32(first)) * splat_f32(middle) * splat_f32(middle)
    return before + between + (splat_f32(total) - end) * splat_f32(high) * splat_f32(high)


@inline
def _best_places(scratch):
    """Return the scale with the least error; its split points and shift go to BEST."""
    best, scale = LOWEST, np.float32(0)
    total_x, total_w = get_f32(scratch + SUMS_X + 128), get_f32(scratch + SUMS_W + 128)
    for first in range(33):
        x, w = get_f32(scratch + SUMS_X + 4 * first), get_f32(scratch + SUMS_W + 4 * first)
        for start in range(first, 33, 16):
            end_x, end_w = load_f32(scratch + SUMS_X + 4 * start), load_f32(scratch + SUMS_W + 4 * start)
            up_x, up_2 = _line(x, end_x, total_x, EIGHTH), _square(w, end_w, total_w, EIGHTH)
            down_x, down_2 = _line(x, end_x, total_x, -EIGHTH), _square(w, end_w, total_w, -EIGHTH)
            if any_lane(better(up_x, up_2, best)) or any_lane(better(down_x, down_2, best)):
                for i in range(16 if start + 16 <= 33 else 33 - start):
                    for down in range(2):
                        qx = lane(down_x, i) if down else lane(up_x, i)
                        q2 = lane(down_2, i) if down else lane(up_2, i)
                        if q2 > np.float32(0) and qx * qx > best * q2:
                            scale = qx / q2
                            best = scale * qx
                            put_i32(scratch + BEST, np.int32(first))
                            put_i32(scratch + BEST + 4, np.int32(start + i))
                            put_i32(scratch + BEST + 8, np.int32(down))
    return scale


@inline
def _put_iq1_s(scratch, out):
    top = largest(scratch + SCALES, 8)
    d = top / np.float32(15)
    inverse = np.float32(1) / d
    put_f16(out, d * np.float32(1.125))
    for group in range(8):
        high = 0
        for piece in range(4):
            code = get_i32(scratch + CODES + 4 * (4 * group + piece))
            put_u8(out + 2 + 4 * group + piece, np.int32(code & 255))
            high |= code >> 8 << 3 * piece
        if top != np.float32(0):
            small = odd_code(inverse, get_f32(scratch + SCALES + 4 * group), 7)
            high |= (small | get_i32(scratch + SHIFTS + 4 * group) << 3) << 12
        put_u16(out + 34 + 2 * group, np.int32(high))
