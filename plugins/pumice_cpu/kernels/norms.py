"""Normalization of rows, and softmax."""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline, load_up_to, part_start, store_up_to
from pumice_cpu.simd import (
    bits_f32,
    exp,
    fma,
    get_f32,
    get_i64,
    keep_first,
    lane,
    load_f32,
    max_lanes,
    maximum,
    put_f32,
    splat_f32,
    square_root,
    sum_lanes,
)


@inline
def sum_of_squares(x, width):
    total = splat_f32(np.float32(0))
    for i in range(0, width, 16):
        values = load_up_to(x + 4 * i, width - i)
        total = fma(values, values, total)
    return sum_lanes(total)


@inline
def inverse_root(sum, width, eps):
    """Return ``1 / sqrt(sum / width + eps)`` in every lane."""
    mean = sum / np.float32(width) + eps
    return splat_f32(np.float32(1)) / square_root(splat_f32(mean))


def rms_norm(thread, n_threads, count, x, weight, y, n_rows, n_weights, width, eps):
    """Normalize ``n_rows`` rows per token; row ``i`` is multiplied by row ``i % n_weights`` of the weight."""
    rows = get_i64(count) * n_rows
    for row in range(part_start(rows, thread, n_threads), part_start(rows, thread + 1, n_threads)):
        source, result, factors = x + 4 * width * row, y + 4 * width * row, weight + 4 * width * (row % n_weights)
        factor = inverse_root(sum_of_squares(source, width), width, bits_f32(eps))
        for i in range(0, width, 16):
            left = width - i
            value = load_up_to(source + 4 * i, left) * factor * load_up_to(factors + 4 * i, left)
            store_up_to(result + 4 * i, value, left)


def layer_norm(thread, n_threads, count, x, weight, bias, y, n_rows, n_weights, width, eps):
    """Like ``rms_norm``; ``bias`` has as many rows as the weight."""
    rows = get_i64(count) * n_rows
    for row in range(part_start(rows, thread, n_threads), part_start(rows, thread + 1, n_threads)):
        source, result, which = x + 4 * width * row, y + 4 * width * row, 4 * width * (row % n_weights)
        total = splat_f32(np.float32(0))
        for i in range(0, width, 16):
            total = total + load_up_to(source + 4 * i, width - i)
        mean = splat_f32(sum_lanes(total) / np.float32(width))
        total = splat_f32(np.float32(0))
        for i in range(0, width, 16):
            left = np.int32(width - i)
            centred = keep_first(load_up_to(source + 4 * i, width - i) - mean, left)
            total = fma(centred, centred, total)
        factor = inverse_root(sum_lanes(total), width, bits_f32(eps))
        for i in range(0, width, 16):
            left = width - i
            value = (load_up_to(source + 4 * i, left) - mean) * factor
            value = fma(value, load_up_to(weight + which + 4 * i, left), load_up_to(bias + which + 4 * i, left))
            store_up_to(result + 4 * i, value, left)


def softmax(thread, n_threads, count, x, y, n_rows, width):
    rows = get_i64(count) * n_rows
    full = width - width % 16
    for row in range(part_start(rows, thread, n_threads), part_start(rows, thread + 1, n_threads)):
        source, result = x + 4 * width * row, y + 4 * width * row
        largest = splat_f32(np.float32(-np.inf))
        for i in range(0, full, 16):
            largest = maximum(largest, load_f32(source + 4 * i))
        top = max_lanes(largest)
        for i in range(full, width):
            value = lane(load_up_to(source + 4 * i, 1), 0)
            top = value if value > top else top
        total = splat_f32(np.float32(0))
        for i in range(0, width, 16):
            remaining = width - i
            value = exp(load_up_to(source + 4 * i, remaining) - splat_f32(top))
            total = total + keep_first(value, np.int32(remaining))
            store_up_to(result + 4 * i, value, remaining)
        inverse = splat_f32(np.float32(1) / sum_lanes(total))
        for i in range(0, width, 16):
            remaining = width - i
            store_up_to(result + 4 * i, load_up_to(result + 4 * i, remaining) * inverse, remaining)


def balance(thread, n_threads, count, y, n_matrices, n, n_iterations, eps):
    """Run the iterations of ``sinkhorn`` after the softmax, in place, on ``n_matrices`` ``[n, n]`` per token."""
    matrices, least = get_i64(count) * n_matrices, bits_f32(eps)
    for index in range(part_start(matrices, thread, n_threads), part_start(matrices, thread + 1, n_threads)):
        matrix = y + 4 * n * n * index
        for i in range(n * n):
            put_f32(matrix + 4 * i, get_f32(matrix + 4 * i) + least)
        for time in range(2 * n_iterations - 1):
            along, across = (4 * n, 4) if time % 2 == 0 else (4, 4 * n)
            for line in range(n):
                total, start = least, matrix + across * line
                for i in range(n):
                    total += get_f32(start + along * i)
                factor = np.float32(1) / total
                for i in range(n):
                    put_f32(start + along * i, get_f32(start + along * i) * factor)
