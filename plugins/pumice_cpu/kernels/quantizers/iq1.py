"""IQ1_S and IQ1_M: numbers as -1, 0 or 1, all of them an eighth higher or lower, eight of them a point of a grid.

The numbers of a group are sorted; the best two places where the digit changes are looked for among all.
"""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.kernels.quantizers.grid import AFTER, DIGITS, POINTS, ROOT, TRIALS, X, best_neighbour, look_up
from pumice_cpu.kernels.quantizers.scales import at_most
from pumice_cpu.simd import (
    any_lane,
    get_f32,
    get_i32,
    get_i64,
    get_u8,
    get_u16,
    lane,
    load_f32,
    nearest,
    put_f16,
    put_f32,
    put_i32,
    put_u8,
    put_u16,
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
def _weigh(scratch, place, weights, column, n, sigma, weighted, keep):
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
def _is_small(scratch, n, smallest):
    small = True
    for i in range(n):
        small = small and abs(get_f32(scratch + X + 4 * i)) < smallest
    return small


@inline
def _sort(scratch, n):
    """Numbers by size, equal ones in their order."""
    for i in range(n):
        x = get_f32(scratch + X + 4 * i)
        at = i
        while at > 0 and get_f32(scratch + X + 4 * get_i32(scratch + ORDER + 4 * at - 4)) > x:
            put_i32(scratch + ORDER + 4 * at, get_i32(scratch + ORDER + 4 * at - 4))
            at -= 1
        put_i32(scratch + ORDER + 4 * at, np.int32(i))


@inline
def _add_up(scratch, n, first, end, sums_x, sums_w):
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
def _put_digits(scratch, n, first, second, reverse):
    """0 before the first place, 1 before the second, 2 after it; reversed: 2, 1 and 0."""
    for i in range(n):
        digit = 0 if i < first else 1 if i < second else 2
        place = scratch + DIGITS + 4 * get_i32(scratch + ORDER + 4 * i)
        put_i32(place, np.int32(2 - digit if reverse else digit))


@inline
def _value(scratch, code, i, shift):
    return np.float32((get_u8(get_i64(scratch + POINTS) + 8 * code + i) - 1) // 2 - 1) + shift


@inline
def _look_up(scratch, piece, scale, shift):
    """The code of eight digits, or of the best point near them, and whether they had one."""
    code = look_up(scratch, 8 * piece, 8, 2)
    if code >= 0:
        return code, True
    factor, offset = np.float32(0.5), shift - np.float32(1.5)
    return best_neighbour(scratch, -1 - code, 8 * piece, 8, scale, factor, offset), False


@inline
def _add_fit(scratch, code, piece, shift, sum_qx, sum_q2):
    for i in range(8):
        q, w = _value(scratch, code, i, shift), get_f32(scratch + ROOT + 4 * (8 * piece + i))
        sum_qx += w * q * get_f32(scratch + X + 4 * (8 * piece + i))
        sum_q2 += w * q * q
    return sum_qx, sum_q2


@inline
def _small_scale(inverse, scale):
    code = at_most(nearest(np.float32(0.5) * (inverse * scale - np.float32(1))), 7)
    return code if code > 0 else np.int32(0)


@inline
def _largest_scale(scratch, n):
    top = np.float32(0)
    for i in range(n):
        scale = get_f32(scratch + SCALES + 4 * i)
        top = scale if scale > top else top
    return top


# --- IQ1_S


def iq1_s(kind):
    """8 groups of 32, each with one shift."""

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        for block in range(n_blocks):
            sigma = np.float32(2) * get_f32(sums + 4 * block) / np.float32(256)
            for group in range(8):
                place, column = values + 1024 * block + 128 * group, 256 * block % n_columns + 32 * group
                _weigh(scratch, place, weights, column, 32, sigma, True, scratch + WEIGHTS)
                _fit_iq1_s(scratch, group)
            _put_iq1_s(scratch, out + 50 * block)

    return quantize


@inline
def _fit_iq1_s(scratch, group):
    scale, shift = np.float32(0), EIGHTH
    if _is_small(scratch, 32, np.float32(1e-12)):
        for piece in range(4):
            put_i32(scratch + CODES + 4 * (4 * group + piece), np.int32(0))
    else:
        _sort(scratch, 32)
        _add_up(scratch, 32, 0, 32, SUMS_X, SUMS_W)
        scale = _best_places(scratch)
        shift = EIGHTH if get_i32(scratch + BEST + 8) == 0 else -EIGHTH
        _put_digits(scratch, 32, get_i32(scratch + BEST), get_i32(scratch + BEST + 4), scale < np.float32(0))
        if scale < np.float32(0):
            scale, shift = -scale, -shift
        sum_qx, sum_q2, all_there = np.float32(0), np.float32(0), True
        for piece in range(4):
            code, there = _look_up(scratch, piece, scale, shift)
            all_there = all_there and there
            put_i32(scratch + CODES + 4 * (4 * group + piece), code)
            sum_qx, sum_q2 = _add_fit(scratch, code, piece, shift, sum_qx, sum_q2)
        if not all_there and sum_qx > np.float32(0) and sum_q2 > np.float32(0):
            scale = sum_qx / sum_q2
    put_f32(scratch + SCALES + 4 * group, scale)
    put_i32(scratch + SHIFTS + 4 * group, np.int32(0 if shift > np.float32(0) else 1))


@inline
def _line(first, end, total, shift):
    """Of the sums up to each second place: what a digit stands for, times the sum over the numbers that have it."""
    low, middle, high = shift - np.float32(1), shift, shift + np.float32(1)
    before = splat_f32(first * low)
    return before + (end - splat_f32(first)) * splat_f32(middle) + (splat_f32(total) - end) * splat_f32(high)


@inline
def _square(first, end, total, shift):
    """As ``_line``, with squares of what digits stand for."""
    low, middle, high = shift - np.float32(1), shift, shift + np.float32(1)
    before = splat_f32(first * low * low)
    between = (end - splat_f32(first)) * splat_f32(middle) * splat_f32(middle)
    return before + between + (splat_f32(total) - end) * splat_f32(high) * splat_f32(high)


@inline
def _better(qx, q2, best):
    return (q2 > splat_f32(np.float32(0))) & (qx * qx > splat_f32(best) * q2)


@inline
def _best_places(scratch):
    """The scale with the least error; its places and whether the shift is down go to BEST."""
    best, scale = LOWEST, np.float32(0)
    total_x, total_w = get_f32(scratch + SUMS_X + 128), get_f32(scratch + SUMS_W + 128)
    for first in range(33):
        x, w = get_f32(scratch + SUMS_X + 4 * first), get_f32(scratch + SUMS_W + 4 * first)
        for start in range(first, 33, 16):
            end_x, end_w = load_f32(scratch + SUMS_X + 4 * start), load_f32(scratch + SUMS_W + 4 * start)
            up_x, up_2 = _line(x, end_x, total_x, EIGHTH), _square(w, end_w, total_w, EIGHTH)
            down_x, down_2 = _line(x, end_x, total_x, -EIGHTH), _square(w, end_w, total_w, -EIGHTH)
            if any_lane(_better(up_x, up_2, best)) or any_lane(_better(down_x, down_2, best)):
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
    top = _largest_scale(scratch, 8)
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
            small = _small_scale(inverse, get_f32(scratch + SCALES + 4 * group))
            high |= (small | get_i32(scratch + SHIFTS + 4 * group) << 3) << 12
        put_u16(out + 34 + 2 * group, np.int32(high))


# --- IQ1_M


def iq1_m(kind):
    """16 groups of 16, each eight with its own shift."""
    weighted = kind == "weighted"

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        for block in range(n_blocks):
            sigma = np.float32(2) * get_f32(sums + 4 * block) / np.float32(256) if weighted else np.float32(0)
            for group in range(16):
                place, column = values + 1024 * block + 64 * group, 256 * block % n_columns + 16 * group
                _weigh(scratch, place, weights, column, 16, sigma, weighted, scratch + WEIGHTS + 64 * group)
                _fit_iq1_m(scratch, group)
            _put_iq1_m(scratch, values + 1024 * block, out + 56 * block)

    return quantize


@inline
def _fit_iq1_m(scratch, group):
    """SHIFTS gets 0 to 3: which of the two eights are shifted down, the first one in the higher bit."""
    scale, shifts = np.float32(0), 0
    if _is_small(scratch, 16, np.float32(1e-7)):
        for piece in range(2):
            put_i32(scratch + CODES + 4 * (2 * group + piece), np.int32(0))
    else:
        _sort(scratch, 16)
        _add_up(scratch, 16, 0, 8, SUMS_X, SUMS_W)
        _add_up(scratch, 16, 8, 16, SUMS_X_2, SUMS_W_2)
        scale = _best_places_of_eights(scratch)
        shifts = get_i32(scratch + BEST + 8)
        _put_digits(scratch, 16, get_i32(scratch + BEST), get_i32(scratch + BEST + 4), scale < np.float32(0))
        if scale < np.float32(0):
            scale, shifts = -scale, 3 - shifts
        sum_qx, sum_q2, all_there = np.float32(0), np.float32(0), True
        for piece in range(2):
            shift = _shift(shifts, piece)
            code, there = _look_up(scratch, piece, scale, shift)
            all_there = all_there and there
            put_i32(scratch + CODES + 4 * (2 * group + piece), code)
            sum_qx, sum_q2 = _add_fit(scratch, code, piece, shift, sum_qx, sum_q2)
        if not all_there and sum_qx > np.float32(0) and sum_q2 > np.float32(0):
            scale = sum_qx / sum_q2
    put_f32(scratch + SCALES + 4 * group, scale)
    put_i32(scratch + SHIFTS + 4 * group, np.int32(shifts))


@inline
def _shift(shifts, piece):
    return -EIGHTH if (shifts >> (1 - piece)) & 1 else EIGHTH


@inline
def _line_of_eight(sums, first, end, shift):
    """What ``_line`` is, added up otherwise: the highest value for all, less 1 for each place that comes later."""
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
    """As ``_best_places``, with the four combinations of shifts."""
    best, scale = LOWEST, np.float32(0)
    for first in range(17):
        x, w = get_f32(scratch + SUMS_X + 4 * first), get_f32(scratch + SUMS_W + 4 * first)
        x_2, w_2 = get_f32(scratch + SUMS_X_2 + 4 * first), get_f32(scratch + SUMS_W_2 + 4 * first)
        for start in range(first, 17, 16):
            end_x, end_w = load_f32(scratch + SUMS_X + 4 * start), load_f32(scratch + SUMS_W + 4 * start)
            end_x_2, end_w_2 = load_f32(scratch + SUMS_X_2 + 4 * start), load_f32(scratch + SUMS_W_2 + 4 * start)
            found = False
            for shifts in range(4):
                a, b = _shift(shifts, 0), _shift(shifts, 1)
                line = _line_of_eight(scratch + SUMS_X, x, end_x, a)
                line = line + _line_of_eight(scratch + SUMS_X_2, x_2, end_x_2, b)
                square = _square_of_eight(scratch + SUMS_W, w, end_w, a)
                square = square + _square_of_eight(scratch + SUMS_W_2, w_2, end_w_2, b)
                store_f32(scratch + TRIALS + 128 * shifts, line)
                store_f32(scratch + TRIALS + 128 * shifts + 64, square)
                found = found or any_lane(_better(line, square, best))
            for i in range((16 if start + 16 <= 17 else 17 - start) if found else 0):
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
    """8 bits of each code; the other three with the shifts; scales of 3 bits, with the block's in their top bits."""
    top = _largest_scale(scratch, 16)
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
            small = _small_scale(inverse, get_f32(scratch + SCALES + 4 * group))
            shifts = get_i32(scratch + SHIFTS + 4 * group)
            place = out + 48 + 2 * (group // 4)
            put_u16(place, np.int32(get_u16(place) | small << 3 * (group % 4)))
            down = (shifts >> 1) << 3 | (shifts & 1) << 7
            put_u8(out + 32 + group, np.int32(get_u8(out + 32 + group) | down))
            for piece in range(2):
                code, shift = get_i32(scratch + CODES + 4 * (2 * group + piece)), _shift(shifts, piece)
                for i in range(8):
                    at = 16 * group + 8 * piece + i
                    q = _value(scratch, code, i, shift) * np.float32(2 * small + 1)
                    w = get_f32(scratch + WEIGHTS + 4 * at)
                    sum_qx += w * q * get_f32(values + 4 * at)
                    sum_q2 += w * q * q
        if sum_q2 > np.float32(0):
            d = sum_qx / sum_q2
        put_f16(scratch + BEST, d * np.float32(1.1125))
        half = get_u16(scratch + BEST)
        for i in range(4):
            place = out + 48 + 2 * i
            put_u16(place, np.int32(get_u16(place) | (half >> 4 * i & 15) << 12))
