"""Codes of 8 or 4 numbers at once that stand for points of a grid (`pumice_cpu.grids`).

Lanes are numbers of a group, neighbours of a point, or trials of a scale, whichever are numerous enough.
"""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.simd import (
    clamp_i32,
    first_lane,
    get_f32,
    get_i32,
    get_i64,
    get_u8,
    lane,
    load_f32,
    load_u8,
    min_lanes,
    nearest_i32,
    put_f32,
    put_i32,
    put_u8,
    splat_f32,
    store_i32,
    to_f32,
)

# Offsets in the scratch memory, in bytes. First the addresses of a grid's tables.
POINTS, LOOKUP, LISTS, CODES, NEIGHBOURS = range(0, 40, 8)
X, W, ROOT = 64, 192, 320  # up to 32 magnitudes, their weights, and the weights for the comparison of neighbours
DIGITS = 448  # 32 int32
BEST = 576  # odd numbers, 32 bytes
TRIALS = 640  # odd numbers of each trial: 32 of 32 bytes
ON_GRID = 1664  # per trial, a bit for each piece that is a grid point
AFTER = 1792


@inline
def best_neighbour(scratch, place, first, n_digits, scale, factor, offset):
    """Return the code of the neighbour in list ``place`` that is nearest to the numbers from ``first``.

    The neighbour's numbers are ``scale * (factor * odd + offset)``. Ties take the first.
    """
    start = get_i32(get_i64(scratch + LISTS) + 4 * place)
    end = get_i32(get_i64(scratch + LISTS) + 4 * place + 4)
    best = np.float32(3.4028234663852886e38)
    code = get_i32(get_i64(scratch + CODES) + 64 * start)
    for group in range(start, end):
        neighbours = get_i64(scratch + NEIGHBOURS) + 16 * n_digits * group
        distance = splat_f32(np.float32(0))
        for i in range(n_digits):
            value = to_f32(load_u8(neighbours + 16 * i)) * splat_f32(factor) + splat_f32(offset)
            difference = splat_f32(scale) * value - splat_f32(get_f32(scratch + X + 4 * (first + i)))
            weight = splat_f32(get_f32(scratch + ROOT + 4 * (first + i)))
            distance = distance + weight * difference * difference
        nearest = min_lanes(distance)
        if nearest < best:
            best = nearest
            nearest_lane = first_lane(distance == splat_f32(nearest))
            code = get_i32(get_i64(scratch + CODES) + 64 * group + 4 * nearest_lane)
    return code


@inline
def round_digits(scratch, n, inverse, top):
    """Round ``inverse`` times each number to digits, as if every combination were on the grid."""
    half, one = splat_f32(np.float32(0.5)), splat_f32(np.float32(1))
    for part in range(n // 16):
        x = load_f32(scratch + X + 64 * part)
        digits = nearest_i32(half * (splat_f32(inverse) * x - one))
        store_i32(scratch + DIGITS + 64 * part, clamp_i32(digits, np.int32(0), np.int32(top - 1)))


@inline
def look_up(scratch, first, n_digits, bits):
    """Look up the digits from ``first``: their code, or a negative index of their list of neighbours."""
    number = 0
    for i in range(n_digits):
        number |= get_i32(scratch + DIGITS + 4 * (first + i)) << bits * i
    return get_i32(get_i64(scratch + LOOKUP) + 4 * number)


@inline
def try_scale(scratch, trial, n, n_digits, bits, top, inverse):
    """Store the grid points nearest to the numbers for one scale as trial ``trial``."""
    round_digits(scratch, n, inverse, top)
    scale = np.float32(1) / inverse
    on_grid = 0
    for piece in range(n // n_digits):
        first = n_digits * piece
        code = look_up(scratch, first, n_digits, bits)
        if code >= 0:
            on_grid |= 1 << piece
        else:
            code = best_neighbour(scratch, -1 - code, first, n_digits, scale, np.float32(1), np.float32(0))
        point = get_i64(scratch + POINTS) + n_digits * code
        for i in range(n_digits):
            put_u8(scratch + TRIALS + 32 * (first + i) + trial, get_u8(point + i))
    put_i32(scratch + ON_GRID + 4 * trial, np.int32(on_grid))


@inline
def _trial_sums(scratch, n, part):
    """Return the sums of weight * number * odd and of weight * odd² of 16 trials."""
    sum_qx = splat_f32(np.float32(0))
    sum_q2 = splat_f32(np.float32(0))
    for i in range(n):
        q = to_f32(load_u8(scratch + TRIALS + 32 * i + 16 * part))
        w = splat_f32(get_f32(scratch + W + 4 * i))
        sum_qx = sum_qx + w * splat_f32(get_f32(scratch + X + 4 * i)) * q
        sum_q2 = sum_q2 + w * q * q
    return sum_qx, sum_q2


@inline
def best_trial(scratch, n, n_trials, scale):
    """Return the trial with the least error and its scale; -1 and ``scale`` if no trial has a finite one."""
    best, chosen = np.float32(0), -1
    for part in range((n_trials + 15) // 16):
        sum_qx, sum_q2 = _trial_sums(scratch, n, part)
        for i in range(16):
            qx, q2 = lane(sum_qx, i), lane(sum_q2, i)
            if 16 * part + i < n_trials and q2 > np.float32(0) and qx * qx > best * q2:
                scale = qx / q2
                best = scale * qx
                chosen = 16 * part + i
    return chosen, scale


@inline
def take_trial(scratch, n, trial):
    """Copy the odd numbers of a trial to BEST; trial -1: all 1."""
    for i in range(n):
        put_u8(scratch + BEST + i, get_u8(scratch + TRIALS + 32 * i + trial) if trial >= 0 else np.int32(1))


@inline
def fit_again(scratch, n, n_digits, bits, top, scale, skip):
    """Find points for a scale, except for the pieces in the bits of ``skip``. Return the best scale for the points."""
    round_digits(scratch, n, np.float32(1) / scale, top)
    for piece in range(n // n_digits):
        if (skip >> piece) & 1 == 0:
            first = n_digits * piece
            code = look_up(scratch, first, n_digits, bits)
            if code < 0:
                code = best_neighbour(scratch, -1 - code, first, n_digits, scale, np.float32(1), np.float32(0))
            point = get_i64(scratch + POINTS) + n_digits * code
            for i in range(n_digits):
                put_u8(scratch + BEST + first + i, get_u8(point + i))
    sum_qx, sum_q2 = np.float32(0), np.float32(0)
    for i in range(n):
        q, w = np.float32(get_u8(scratch + BEST + i)), get_f32(scratch + W + 4 * i)
        sum_qx += w * get_f32(scratch + X + 4 * i) * q
        sum_q2 += w * q * q
    return sum_qx / sum_q2 if sum_q2 > np.float32(0) else scale


@inline
def code_of(scratch, first, n_digits, bits):
    """Return the code of the best point from ``first``."""
    number = 0
    for i in range(n_digits):
        number |= (get_u8(scratch + BEST + first + i) - 1) // 2 << bits * i
    return get_i32(get_i64(scratch + LOOKUP) + 4 * number)


@inline
def take_signs(scratch, first, even):
    """Remove the signs of eight numbers from ``first`` and return them as bits.

    ``even``: if the number of negative ones is odd, flip the sign of the number with the least weight.
    """
    signs, least = 0, 0
    lowest = np.float32(0)
    for i in range(8):
        x, w = get_f32(scratch + X + 4 * (first + i)), get_f32(scratch + W + 4 * (first + i))
        cost = w * x * x
        if i == 0 or cost < lowest:
            lowest, least = cost, i
        if x < np.float32(0):
            signs |= 1 << i
            put_f32(scratch + X + 4 * (first + i), -x)
    odd = signs ^ (signs >> 4)
    odd ^= odd >> 2
    if even and (odd ^ (odd >> 1)) & 1:
        put_f32(scratch + X + 4 * (first + least), -get_f32(scratch + X + 4 * (first + least)))
        signs ^= 1 << least
    return signs & (127 if even else 255)


@inline
def largest_of(scratch, n):
    top = get_f32(scratch + X)
    for i in range(1, n):
        x = get_f32(scratch + X + 4 * i)
        top = x if x > top else top
    return top
