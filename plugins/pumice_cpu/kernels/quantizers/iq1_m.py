"""IQ1_M: groups of 16 numbers with a scale, and a shift by an eighth for each half."""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.kernels.quantizers.grid import TRIALS
from pumice_cpu.kernels.quantizers.scales import largest, odd_code
from pumice_cpu.kernels.quantizers.ternary import (
    BEST,
    CODES,
    EIGHTH,
    LOWEST,
    SCALES,
    SHIFTS,
    SUMS_W,
    SUMS_W_2,
    SUMS_X,
    SUMS_X_2,
    WEIGHTS,
    add_fit,
    add_up,
    better,
    is_small,
    nearest_code,
    put_digits,
    sort,
    value,
    weigh,
)
from pumice_cpu.simd import (
    any_lane,
    get_f32,
    get_i32,
    get_u8,
    get_u16,
    load_f32,
    put_f16,
    put_f32,
    put_i32,
    put_u8,
    put_u16,
    splat_f32,
    store_f32,
)


def iq1_m(kind):
    """16 groups of 16; each eight numbers have their own shift."""
    weighted = kind == "weighted"

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        for block in range(n_blocks):
            sigma = np.float32(2) * get_f32(sums + 4 * block) / np.float32(256) if weighted else np.float32(0)
            for group in range(16):
                place, column = values + 1024 * block + 64 * group, 256 * block % n_columns + 16 * group
                weigh(scratch, place, weights, column, 16, sigma, weighted, scratch + WEIGHTS + 64 * group)
                _fit_iq1_m(scratch, group)
            _put_iq1_m(scratch, values + 1024 * block, out + 56 * block)

    return quantize


@inline
def _fit_iq1_m(scratch, group):
    """Fit a group. SHIFTS gets 0 to 3: which eights are shifted down, the first in the higher bit."""
    scale, shifts = np.float32(0), 0
    if is_small(scratch, 16, np.float32(1e-7)):
        for piece in range(2):
            put_i32(scratch + CODES + 4 * (2 * group + piece), np.int32(0))
    else:
        sort(scratch, 16)
        add_up(scratch, 16, 0, 8, SUMS_X, SUMS_W)
        add_up(scratch, 16, 8, 16, SUMS_X_2, SUMS_W_2)
        scale = _best_places_of_eights(scratch)
        shifts = get_i32(scratch + BEST + 8)
        put_digits(scratch, 16, get_i32(scratch + BEST), get_i32(scratch + BEST + 4), scale < np.float32(0))
        if scale < np.float32(0):
            scale, shifts = -scale, 3 - shifts
        sum_qx, sum_q2, all_on_grid = np.float32(0), np.float32(0), True
        for piece in range(2):
            shift = _shift(shifts, piece)
            code, on_grid = nearest_code(scratch, piece, scale, shift)
            all_on_grid = all_on_grid and on_grid
            put_i32(scratch + CODES + 4 * (2 * group + piece), code)
            sum_qx, sum_q2 = add_fit(scratch, code, piece, shift, sum_qx, sum_q2)
        if not all_on_grid and sum_qx > np.float32(0) and sum_q2 > np.float32(0):
            scale = sum_qx / sum_q2
    put_f32(scratch + SCALES + 4 * group, scale)
    put_i32(scratch + SHIFTS + 4 * group, np.int32(shifts))


@inline
def _shift(shifts, piece):
    return -EIGHTH if (shifts >> (1 - piece)) & 1 else EIGHTH


@inline
def _line_of_eight(sums, first, end, shift):
    """Like ``_line``, in another order of additions: the highest digit times all, less 1 for each later digit."""
    total = get_f32(sums + 64)
    return splat_f32(total * (shift + np.float32(1))) - (splat_f32(first) + end)


@inline
def _square_of_eight(sums, first, end, shift):
    total = get_f32(sums + 64)
    low, middle, high = shift - np.float32(1), shift, shift + np.float32(1)
    before = splat_f32(total * high * high) + splat_f32(first * (low * low - middle * middle))
    return before + end * splat_f32(middle * middle - high * high)


@inline
def _best_places_of_eights(scratch):
    """Like ``_best_places``, with the four combinations of shifts."""
    best, scale = LOWEST, np.float32(0)
    for first in range(17):
        x, w = get_f32(scratch + SUMS_X + 4 * first), get_f32(scratch + SUMS_W + 4 * first)
        x_2, w_2 = get_f32(scratch + SUMS_X_2 + 4 * first), get_f32(scratch + SUMS_W_2 + 4 * first)
        for start in range(first, 17, 16):
            end_x, end_w = load_f32(scratch + SUMS_X + 4 * start), load_f32(scratch + SUMS_W + 4 * start)
            end_x_2, end_w_2 = load_f32(scratch + SUMS_X_2 + 4 * start), load_f32(scratch + SUMS_W_2 + 4 * start)
            is_better = False
            for shifts in range(4):
                a, b = _shift(shifts, 0), _shift(shifts, 1)
                line = _line_of_eight(scratch + SUMS_X, x, end_x, a)
                line = line + _line_of_eight(scratch + SUMS_X_2, x_2, end_x_2, b)
                square = _square_of_eight(scratch + SUMS_W, w, end_w, a)
                square = square + _square_of_eight(scratch + SUMS_W_2, w_2, end_w_2, b)
                store_f32(scratch + TRIALS + 128 * shifts, line)
                store_f32(scratch + TRIALS + 128 * shifts + 64, square)
                is_better = is_better or any_lane(better(line, square, best))
            for i in range((16 if start + 16 <= 17 else 17 - start) if is_better else 0):
                for shifts in range(4):
                    qx = get_f32(scratch + TRIALS + 128 * shifts + 4 * i)
                    q2 = get_f32(scratch + TRIALS + 128 * shifts + 64 + 4 * i)
                    if q2 > np.float32(0) and qx * qx > best * q2:
                        scale = qx / q2
                        best = scale * qx
                        put_i32(scratch + BEST, np.int32(first))
                        put_i32(scratch + BEST + 4, np.int32(start + i))
                        put_i32(scratch + BEST + 8, np.int32(shifts))
    return scale


@inline
def _put_iq1_m(scratch, values, out):
    """Store 8 bits of each code, the other three with the shifts, and 3-bit scales with the block's in the top bits."""
    top = largest(scratch + SCALES, 16)
    for group in range(16):
        first, second = get_i32(scratch + CODES + 8 * group), get_i32(scratch + CODES + 8 * group + 4)
        put_u8(out + 2 * group, np.int32(first & 255))
        put_u8(out + 2 * group + 1, np.int32(second & 255))
        put_u8(out + 32 + group, np.int32(first >> 8 | second >> 8 << 4))
    for i in range(4):
        put_u16(out + 48 + 2 * i, np.int32(0))
    if top != np.float32(0):
        d = top / np.float32(15)
        inverse = np.float32(1) / d
        sum_qx, sum_q2 = np.float32(0), np.float32(0)
        for group in range(16):
            small = odd_code(inverse, get_f32(scratch + SCALES + 4 * group), 7)
            shifts = get_i32(scratch + SHIFTS + 4 * group)
            place = out + 48 + 2 * (group // 4)
            put_u16(place, np.int32(get_u16(place) | small << 3 * (group % 4)))
            down = (shifts >> 1) << 3 | (shifts & 1) << 7
            put_u8(out + 32 + group, np.int32(get_u8(out + 32 + group) | down))
            for piece in range(2):
                code, shift = get_i32(scratch + CODES + 4 * (2 * group + piece)), _shift(shifts, piece)
                for i in range(8):
                    index = 16 * group + 8 * piece + i
                    q = value(scratch, code, i, shift) * np.float32(2 * small + 1)
                    w = get_f32(scratch + WEIGHTS + 4 * index)
                    sum_qx += w * q * get_f32(values + 4 * index)
                    sum_q2 += w * q * q
        if sum_q2 > np.float32(0):
            d = sum_qx / sum_q2
        put_f16(scratch + BEST, d * np.float32(1.1125))
        half = get_u16(scratch + BEST)
        for i in range(4):
            place = out + 48 + 2 * i
            put_u16(place, np.int32(get_u16(place) | (half >> 4 * i & 15) << 12))
