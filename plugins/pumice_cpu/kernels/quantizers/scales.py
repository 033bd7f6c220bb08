"""Scales of a block's groups as one float16 per block and small integers per group."""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.kernels.quantizers.fit import SMALLEST
from pumice_cpu.simd import get_f16, get_f32, get_i32, nearest, put_f16, put_i32


@inline
def as_half(place, value):
    """Store a float16 and return its value as float32."""
    put_f16(place, value)
    return get_f16(place)


@inline
def at_most(code, n_max):
    return code if code < n_max else np.int32(n_max)


@inline
def odd_code(inverse, scale, n_max):
    """Return the code of the odd number 2 * code + 1 nearest to ``inverse`` * ``scale``."""
    code = at_most(nearest(np.float32(0.5) * (inverse * scale - np.float32(1))), n_max)
    return code if code > 0 else np.int32(0)


@inline
def largest(values, n):
    """Return the largest of ``n`` float32, at least 0."""
    result = np.float32(0)
    for i in range(n):
        value = get_f32(values + 4 * i)
        if value > result:
            result = value
    return result


@inline
def farthest(values, n):
    """Return the first value with the largest magnitude; 0 if all are 0."""
    magnitude, result = np.float32(0), np.float32(0)
    for i in range(n):
        value = get_f32(values + 4 * i)
        if abs(value) > magnitude:
            magnitude, result = abs(value), value
    return result


@inline
def share(values, n, n_max, codes):
    """Compute codes of positive scales relative to the largest; return the block's factor."""
    top = largest(values, n)
    inverse = np.float32(n_max) / top if top > np.float32(0) else np.float32(0)
    for i in range(n):
        put_i32(codes + 4 * i, at_most(np.int32(nearest(inverse * get_f32(values + 4 * i)) & 255), n_max))
    return top / np.float32(n_max)


@inline
def _error(values, weights, n, n_max, scale, inverse):
    error = np.float32(0)
    for i in range(n):
        value = get_f32(values + 4 * i)
        code = at_most(nearest(inverse * value), n_max)
        difference = value - scale * np.float32(code)
        error += get_f32(weights + 4 * i) * difference * difference
    return error


@inline
def share_by_descent(values, weights, n, n_max, codes):
    """Like ``share``, minimizing the weighted error."""
    top = largest(values, n)
    if top < SMALLEST:
        for i in range(n):
            put_i32(codes + 4 * i, np.int32(0))
        return np.float32(0)
    inverse = np.float32(n_max) / top
    best = np.float32(0)
    scale = np.float32(1) / inverse
    for i in range(n):
        value = get_f32(values + 4 * i)
        difference = value - scale * np.float32(nearest(inverse * value) & 255)
        best += get_f32(weights + 4 * i) * difference * difference
    for step in range(-4, 5):
        if step != 0:
            trial = (np.float32(0.1) * np.float32(step) + np.float32(n_max)) / top
            error = _error(values, weights, n, n_max, np.float32(1) / trial, trial)
            if error < best:
                best, inverse = error, trial
    return _descend(values, weights, n, n_max, inverse, codes)


@inline
def _descend(values, weights, n, n_max, inverse, codes):
    sum_lx, sum_l2 = np.float32(0), np.float32(0)
    for i in range(n):
        value, w = get_f32(values + 4 * i), get_f32(weights + 4 * i)
        code = at_most(nearest(inverse * value), n_max)
        put_i32(codes + 4 * i, np.int32(code & 255))
        sum_lx += w * value * np.float32(code)
        sum_l2 += w * np.float32(code) * np.float32(code)
    for _ in range(5):
        changed = False
        for i in range(n):
            value, w, old = get_f32(values + 4 * i), get_f32(weights + 4 * i), get_i32(codes + 4 * i)
            lx = sum_lx - w * value * np.float32(old)
            l2 = sum_l2 - w * np.float32(old) * np.float32(old)
            if lx > np.float32(0) and l2 > np.float32(0):
                new = at_most(nearest(value * l2 / lx), n_max)
                if new != old:
                    lx += w * value * np.float32(new)
                    l2 += w * np.float32(new) * np.float32(new)
                    if lx * lx * sum_l2 > sum_lx * sum_lx * l2:
                        put_i32(codes + 4 * i, np.int32(new & 255))
                        sum_lx, sum_l2, changed = lx, l2, True
        if not changed:
            break
    return sum_lx / sum_l2 if sum_l2 > np.float32(0) else np.float32(0)


@inline
def _signed(value, n_max):
    """Return the nearest code from -n_max to n_max - 1."""
    code = at_most(nearest(value), n_max - 1)
    return code if code > -n_max else np.int32(-n_max)


@inline
def symmetric_by_trials(values, weights, n, n_max, codes):
    """Like ``fit.symmetric``, for the ``n`` scales of a block: codes 0 to 2 * n_max - 1. Return the block's factor."""
    peak = farthest(values, n)
    if abs(peak) < SMALLEST:
        for i in range(n):
            put_i32(codes + 4 * i, np.int32(0))
        return np.float32(0)
    scale, best, inverse = np.float32(0), np.float32(0), np.float32(0)
    for attempt in range(19):  # first without a change
        step = 0 if attempt == 0 else attempt - 10 if attempt < 10 else attempt - 9
        trial = -(np.float32(n_max) + np.float32(0.1) * np.float32(step)) / peak
        sum_lx, sum_l2 = np.float32(0), np.float32(0)
        for i in range(n):
            value, w = get_f32(values + 4 * i), get_f32(weights + 4 * i)
            code = np.float32(_signed(trial * value, n_max))
            sum_lx += w * value * code
            sum_l2 += w * code * code
        if attempt == 0:
            scale = np.float32(0) if sum_l2 == np.float32(0) else sum_lx / sum_l2
            best, inverse = scale * sum_lx, trial
        elif sum_l2 > np.float32(0) and sum_lx * sum_lx > best * sum_l2:
            scale, inverse = sum_lx / sum_l2, trial
            best = scale * sum_lx
    for i in range(n):
        put_i32(codes + 4 * i, np.int32(_signed(inverse * get_f32(values + 4 * i), n_max) + n_max))
    return scale
