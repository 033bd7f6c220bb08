"""Activations to int8: blocks of 32 columns, each with a scale and the sums that offsets of weights need.

Rows stand in groups of ``width``, block by block: first the 32 codes of each row of the group, then those of
the next block. Of each block there are four numbers for each row: a float32 scale, and sums of the codes of the
whole block and of its halves. Formats that subtract ``offset`` from their codes (the number is theirs) want these
sums in int32 times ``-offset``; with ``offset`` 0 they are float32 times the scale, for formats with minimums.
"""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline, part_start
from pumice_cpu.simd import (
    absolute,
    get_i32,
    get_i64,
    load_f32,
    max_lanes,
    maximum,
    put_f32,
    put_i32,
    round_to_i32,
    splat_f32,
    store_i8,
    sum_lanes_i32,
)


@inline
def _put_sum(place, sum, scale, offset):
    if offset != 0:
        put_i32(place, np.int32(-offset * sum))
    else:
        put_f32(place, scale * np.float32(sum))


@inline
def quantize_block(x, codes, scales, row, block, n_blocks, width, offset):
    """The 32 values at ``x``, which are a block of a row."""
    low, high = load_f32(x), load_f32(x + 64)
    scale = max_lanes(maximum(absolute(low), absolute(high))) / np.float32(127)
    inverse = np.float32(1) / scale if scale > np.float32(0) else np.float32(0)
    low_codes = round_to_i32(low * splat_f32(inverse))
    high_codes = round_to_i32(high * splat_f32(inverse))
    place = (row - row % width) * n_blocks + block * width
    store_i8(codes + 32 * (place + row % width), low_codes)
    store_i8(codes + 32 * (place + row % width) + 16, high_codes)
    low_sum, high_sum = sum_lanes_i32(low_codes), sum_lanes_i32(high_codes)
    to = scales + 16 * place + 4 * (row % width)
    put_f32(to, scale)
    _put_sum(to + 4 * width, low_sum + high_sum, scale, offset)
    _put_sum(to + 8 * width, low_sum, scale, offset)
    _put_sum(to + 12 * width, high_sum, scale, offset)


def quantize(thread, n_threads, count, x, codes, scales, n_blocks, width, offset):
    """Rows of ``n_blocks`` blocks of float32 ``x``. ``count`` is the address of the number of rows."""
    total = get_i64(count) * n_blocks
    for i in range(part_start(total, thread, n_threads), part_start(total, thread + 1, n_threads)):
        quantize_block(x + 128 * i, codes, scales, i // n_blocks, i % n_blocks, n_blocks, width, offset)


def quantize_chosen(thread, n_threads, count, order, per_row, x, codes, scales, n_blocks, width, offset):
    """Row ``i`` is row ``order[i] // per_row`` of x; where the order has -1 nothing is written."""
    total = get_i64(count) * n_blocks
    for i in range(part_start(total, thread, n_threads), part_start(total, thread + 1, n_threads)):
        row, block = i // n_blocks, i % n_blocks
        chosen = get_i32(order + 4 * row)
        if chosen >= 0:
            source = x + 128 * (chosen // per_row * n_blocks + block)
            quantize_block(source, codes, scales, row, block, n_blocks, width, offset)
