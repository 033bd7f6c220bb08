"""Expert routing: selection of experts per token, their weights, and the weighted sum of their results.

A kernel is made for each gate; ``graph/ops/route.py`` defines the gates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice_cpu.kernels.common import inline, load_up_to, part_start, store_up_to
from pumice_cpu.kernels.elementwise import softplus
from pumice_cpu.kernels.rows import find_largest
from pumice_cpu.simd import (
    bits_f32,
    exp,
    fma,
    get_f32,
    get_i32,
    get_i64,
    keep_first,
    put_f32,
    put_i32,
    splat_f32,
    square_root,
    sum_lanes,
)

SMALLEST_SUM = np.float32(2.0**-14)  # lower bound of the sum that normalizes weights
LOWEST = np.float32(-np.inf)


@inline
def largest(x, n):
    top = LOWEST
    for i in range(n):
        value = get_f32(x + 4 * i)
        top = value if value > top else top
    return top


@inline
def sum_of_exponentials(x, n, top):
    total = splat_f32(np.float32(0))
    for i in range(0, n, 16):
        value = exp(load_up_to(x + 4 * i, n - i) - splat_f32(top))
        total = total + keep_first(value, np.int32(n - i))
    return sum_lanes(total)


@inline
def softmax(value, top, factor):
    return exp(value - splat_f32(top)) * splat_f32(factor)


@inline
def sigmoid(value, top, factor):
    return splat_f32(np.float32(1)) / (splat_f32(np.float32(1)) + exp(splat_f32(np.float32(0)) - value))


@inline
def sqrt_softplus(value, top, factor):
    return square_root(softplus(value))


@inline
def no_gate(value, top, factor):
    return value


OPENED = {"softmax": softmax, "sigmoid": sigmoid, "sqrt_softplus": sqrt_softplus}


@inline
def keep_best_groups(preference, n_expert, n_group, n_group_used, scores):
    """Mask the experts outside of the best groups; a group's score is the sum of its two best experts."""
    size = n_expert // n_group
    for group in range(n_group):
        first, second = LOWEST, LOWEST
        for i in range(group * size, (group + 1) * size):
            value = get_f32(preference + 4 * i)
            if value > first:
                first, second = value, first
            elif value > second:
                second = value
        put_f32(scores + 4 * group, first + second)
    for group in range(n_group):
        mine, better = get_f32(scores + 4 * group), 0
        for other in range(n_group):
            value = get_f32(scores + 4 * other)
            if value > mine or (value == mine and other < group):
                better += 1
        if better >= n_group_used:
            for i in range(group * size, (group + 1) * size):
                put_f32(preference + 4 * i, LOWEST)


def choose(gate: str) -> Any:
    """Return a kernel for ``expert_ids``: the experts with the highest probability plus bias.

    ``scratch`` has room for two values per expert and thread.
    """
    open = (OPENED | {"softmax_of_chosen": no_gate})[gate]
    over_all = gate == "softmax"

    def kernel(thread, n_threads, count, logits, bias, ids, scratch, n_expert, n_used, n_group, n_group_used):
        rows = get_i64(count)
        preference = scratch + 8 * n_expert * thread
        for row in range(part_start(rows, thread, n_threads), part_start(rows, thread + 1, n_threads)):
            source = logits + 4 * n_expert * row
            top, factor = np.float32(0), np.float32(1)
            if over_all:
                top = largest(source, n_expert)
                factor = np.float32(1) / sum_of_exponentials(source, n_expert, top)
            for i in range(0, n_expert, 16):
                left = n_expert - i
                value = open(load_up_to(source + 4 * i, left), top, factor) + load_up_to(bias + 4 * i, left)
                store_up_to(preference + 4 * i, value, left)
            if n_group > 1:
                keep_best_groups(preference, n_expert, n_group, n_group_used, preference + 4 * n_expert)
            find_largest(preference, ids + 4 * n_used * row, n_expert, n_used)

    return kernel


def divide(result: str) -> Any:
    """Return a kernel that divides integers by ``size``; the result is the ``quotient`` or the ``remainder``."""
    gives_quotient = result == "quotient"

    def kernel(thread, n_threads, count, x, y, width, size):
        n = get_i64(count) * width
        for i in range(part_start(n, thread, n_threads), part_start(n, thread + 1, n_threads)):
            value = get_i32(x + 4 * i)
            put_i32(y + 4 * i, np.int32(value // size if gives_quotient else value % size))

    return kernel


def weigh(gate: str) -> Any:
    """Return a kernel for ``expert_weights``; ``normalize`` is 0 or 1, ``scale`` the bits of a float32."""
    open = (OPENED | {"softmax_of_chosen": softmax})[gate]
    over_all, over_chosen = gate == "softmax", gate == "softmax_of_chosen"

    def kernel(thread, n_threads, count, logits, ids, y, n_expert, n_used, normalize, scale):
        rows = get_i64(count)
        for row in range(part_start(rows, thread, n_threads), part_start(rows, thread + 1, n_threads)):
            source, result = logits + 4 * n_expert * row, y + 4 * n_used * row
            for i in range(n_used):
                put_f32(result + 4 * i, get_f32(source + 4 * get_i32(ids + 4 * (n_used * row + i))))
            top, factor = np.float32(0), np.float32(1)
            if over_all:
                top = largest(source, n_expert)
                factor = np.float32(1) / sum_of_exponentials(source, n_expert, top)
            if over_chosen:
                top = largest(result, n_used)
                factor = np.float32(1) / sum_of_exponentials(result, n_used, top)
            total = splat_f32(np.float32(0))
            for i in range(0, n_used, 16):
                left = n_used - i
                value = open(load_up_to(result + 4 * i, left), top, factor)
                total = total + keep_first(value, np.int32(left))
                store_up_to(result + 4 * i, value, left)
            times = bits_f32(scale)
            if normalize:
                sum = sum_lanes(total)
                times = times / (sum if sum > SMALLEST_SUM else SMALLEST_SUM)
            for i in range(0, n_used, 16):
                left = n_used - i
                store_up_to(result + 4 * i, load_up_to(result + 4 * i, left) * splat_f32(times), left)

    return kernel


def add_up(thread, n_threads, count, x, weights, y, n_used, width):
    """Add up ``n_used`` rows of x per token, each times its weight."""
    chunks = (width + 15) // 16
    parts = get_i64(count) * chunks
    for part in range(part_start(parts, thread, n_threads), part_start(parts, thread + 1, n_threads)):
        row, first = part // chunks, 16 * (part % chunks)
        left, source = width - first, x + 4 * (row * n_used * width + first)
        total = splat_f32(np.float32(0))
        for i in range(n_used):
            factor = splat_f32(get_f32(weights + 4 * (row * n_used + i)))
            total = fma(load_up_to(source + 4 * width * i, left), factor, total)
        store_up_to(y + 4 * (row * width + first), total, left)
