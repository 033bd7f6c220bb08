"""Searches for the scale of a group with the least error, sixteen groups at once.

Each search tries some scales near the obvious one and returns the best. ``x[i]`` and ``w[i]`` are the i-th numbers of
the groups and their weights.
"""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.simd import (
    absolute,
    any_lane,
    choose_f32,
    choose_i32,
    clamp_i32,
    maximum,
    minimum,
    nearest_i32,
    splat_f32,
    splat_i32,
    to_f32,
)

SMALLEST = np.float32(1e-15)  # groups with only smaller numbers become zeros


@inline
def farthest_from_zero(x, n):
    """Return each group's largest magnitude, and the first number that has it."""
    magnitude = splat_f32(np.float32(0))
    peak = splat_f32(np.float32(0))
    for i in range(n):
        larger = absolute(x[i]) > magnitude
        magnitude = choose_f32(larger, absolute(x[i]), magnitude)
        peak = choose_f32(larger, x[i], peak)
    return magnitude, peak


@inline
def _symmetric_sums(x, w, n, n_max, inverse):
    """Return the sums of weight * number * code and of weight * code², whose ratio is the scale."""
    sum_lx = splat_f32(np.float32(0))
    sum_l2 = splat_f32(np.float32(0))
    for i in range(n):
        code = to_f32(clamp_i32(nearest_i32(inverse * x[i]), np.int32(-n_max), np.int32(n_max - 1)))
        sum_lx = sum_lx + w[i] * x[i] * code
        sum_l2 = sum_l2 + w[i] * code * code
    return sum_lx, sum_l2


@inline
def symmetric(x, w, n, n_max, codes):
    """Find codes 0 to 2 * n_max - 1 for the values ``scale * (code - n_max)``. Return the scales."""
    zero = splat_f32(np.float32(0))
    magnitude, peak = farthest_from_zero(x, n)
    inverse = splat_f32(np.float32(-n_max)) / peak
    sum_lx, sum_l2 = _symmetric_sums(x, w, n, n_max, inverse)
    scale = choose_f32(sum_l2 == zero, zero, sum_lx / sum_l2)
    best = scale * sum_lx
    for step in range(-9, 10):
        if step != 0:
            trial = splat_f32(-(np.float32(n_max) + np.float32(0.1) * np.float32(step))) / peak
            sum_lx, sum_l2 = _symmetric_sums(x, w, n, n_max, trial)
            better = (sum_l2 > zero) & (sum_lx * sum_lx > best * sum_l2)
            inverse = choose_f32(better, trial, inverse)
            scale = choose_f32(better, sum_lx / sum_l2, scale)
            best = choose_f32(better, scale * sum_lx, best)
    small = magnitude < splat_f32(SMALLEST)
    nothing = splat_i32(np.int32(0))
    for i in range(n):
        code = clamp_i32(nearest_i32(inverse * x[i]), np.int32(-n_max), np.int32(n_max - 1))
        codes[i] = choose_i32(small, nothing, code + splat_i32(np.int32(n_max)))
    return choose_f32(small, zero, scale)


@inline
def symmetric_by_descent(x, n, n_max, codes):
    """Like ``symmetric``, with weights x²: change single codes for as long as that reduces the error."""
    zero = splat_f32(np.float32(0))
    magnitude, peak = farthest_from_zero(x, n)
    inverse = splat_f32(np.float32(-n_max)) / peak
    low, high = np.int32(-n_max), np.int32(n_max - 1)
    sum_lx, sum_l2 = zero, zero
    for i in range(n):
        codes[i] = clamp_i32(nearest_i32(inverse * x[i]), low, high)
        code, w = to_f32(codes[i]), x[i] * x[i]
        sum_lx = sum_lx + w * x[i] * code
        sum_l2 = sum_l2 + w * code * code
    for _ in range(5):
        changed = False
        for i in range(n):
            code, w = to_f32(codes[i]), x[i] * x[i]
            lx = sum_lx - w * x[i] * code
            l2 = sum_l2 - w * code * code
            new = clamp_i32(nearest_i32(x[i] * l2 / lx), low, high)
            other = (lx > zero) & (new != codes[i])
            lx = lx + w * x[i] * to_f32(new)
            l2 = l2 + w * to_f32(new) * to_f32(new)
            better = other & (l2 > zero) & (lx * lx * sum_l2 > sum_lx * sum_lx * l2)
            codes[i] = choose_i32(better, new, codes[i])
            sum_lx = choose_f32(better, lx, sum_lx)
            sum_l2 = choose_f32(better, l2, sum_l2)
            changed = changed or any_lane(better)
        if not changed:
            break
    small = magnitude < splat_f32(SMALLEST)
    for i in range(n):
        codes[i] = choose_i32(small, splat_i32(np.int32(0)), codes[i] + splat_i32(np.int32(n_max)))
    return choose_f32(small, zero, choose_f32(sum_l2 > zero, sum_lx / sum_l2, zero))


@inline
def _error(scale, code, low, x, w, absolutely):
    difference = scale * to_f32(code) + low - x
    return w * (absolute(difference) if absolutely else difference * difference)


@inline
def affine(x, w, n, n_max, first, step, n_steps, absolutely, weighted, codes):
    """Find codes 0 to n_max for the values ``scale * code + low``. Return scales and lows; lows are at most 0.

    Tries ``(first + step * i + n_max) / range`` as the inverse of the scale, for i from 0 to n_steps.
    """
    zero, top = splat_f32(np.float32(0)), splat_f32(np.float32(n_max))
    last = np.int32(n_max)
    low = high = x[0]
    sum_w = w[0]
    sum_x = w[0] * x[0]
    for i in range(1, n):
        low = minimum(x[i], low)
        high = maximum(x[i], high)
        sum_w = sum_w + w[i]
        sum_x = sum_x + w[i] * x[i]
    low = choose_f32(low > zero, zero, low)
    lowest = low
    inverse = top / (high - low)
    scale = splat_f32(np.float32(1)) / inverse
    best = zero
    for i in range(n):
        codes[i] = clamp_i32(nearest_i32(inverse * (x[i] - low)), np.int32(0), last)
        best = best + _error(scale, codes[i], low, x[i], w[i], absolutely)
    for i_step in range(n_steps + 1):
        factor = np.float32(first) + np.float32(step) * np.float32(i_step) + np.float32(n_max)
        trial = splat_f32(factor) / (high - low)
        sum_l, sum_l2, sum_xl = zero, zero, zero
        for i in range(n):
            code = to_f32(clamp_i32(nearest_i32(trial * (x[i] - low)), np.int32(0), last))
            weighted_code = w[i] * code
            sum_l = sum_l + weighted_code
            sum_l2 = sum_l2 + weighted_code * code
            sum_xl = sum_xl + weighted_code * x[i]
        determinant = sum_w * sum_l2 - sum_l * sum_l
        new_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant
        new_low = (sum_l2 * sum_x - sum_l * sum_xl) / determinant
        positive = new_low > zero
        new_scale = choose_f32(positive, sum_xl / sum_l2, new_scale)
        new_low = choose_f32(positive, zero, new_low)
        error = zero
        for i in range(n):
            code = clamp_i32(nearest_i32(trial * (x[i] - low)), np.int32(0), last)
            error = error + _error(new_scale, code, new_low, x[i], w[i], absolutely)
        better = (determinant > zero) & (error < best)
        if any_lane(better):
            for i in range(n):
                code = clamp_i32(nearest_i32(trial * (x[i] - low)), np.int32(0), last)
                codes[i] = choose_i32(better, code, codes[i])
            best = choose_f32(better, error, best)
            scale = choose_f32(better, new_scale, scale)
            low = choose_f32(better, new_low, low)
    flat = high <= lowest if weighted else high == lowest
    for i in range(n):
        codes[i] = choose_i32(flat, splat_i32(np.int32(0)), codes[i])
    return choose_f32(flat, zero, scale), choose_f32(flat, lowest, low)
