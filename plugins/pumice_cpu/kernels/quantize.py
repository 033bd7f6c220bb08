"""Quantization of activations to int8: blocks of 32 columns with a scale and the sums that offsets of weights need.

Rows are stored in groups of ``width``, block by block: the 32 codes of each row of the group, then those of the next
block. A block has four numbers per row: a float32 scale, and sums of the codes of the whole block and of its halves.
For formats that subtract ``offset`` from their codes the sums are int32 times ``-offset``; with ``offset`` 0 they are
float32 times the scale, for formats with minimums.
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
def quantize_block(low, high, codes, scales, width, offset):
    """Quantize the 32 values of a block to the addresses of its codes and of its four numbers."""
    scale = max_lanes(maximum(absolute(low), absolute(high))) / np.float32(127)
    inverse = np.float32(1) / scale if scale > np.float32(0) else np.float32(0)
    low_codes = round_to_i32(low * splat_f32(inverse))
    high_codes = round_to_i32(high * splat_f32(inverse))
    store_i8(codes, low_codes)
    store_i8(codes + 16, high_codes)
    low_sum, high_sum = sum_lanes_i32(low_codes), sum_lanes_i32(high_codes)
    put_f32(scales, scale)
    _put_sum(scales + 4 * width, low_sum + high_sum, scale, offset)
    _put_sum(scales + 8 * width, low_sum, scale, offset)
    _put_sum(scales + 12 * width, high_sum, scale, offset)


@inline
def row_places(codes, scales, row, n_blocks, width):
    """Return the addresses of the codes and numbers of a row's first block; later blocks are ``width`` blocks apart."""
    group = (row - row % width) * n_blocks
    return codes + 32 * (group + row % width), scales + 16 * group + 4 * (row % width)


def quantize(thread, n_threads, count, x, codes, scales, n_blocks, width, offset):
    """Quantize rows of ``n_blocks`` blocks of float32 ``x``. ``count`` is the address of the number of rows."""
    total = get_i64(count) * n_blocks
    i, end = part_start(total, thread, n_threads), part_start(total, thread + 1, n_threads)
    while i < end:
        row, block = i // n_blocks, i % n_blocks
        row_codes, row_scales = row_places(codes, scales, row, n_blocks, width)
        left = end - i if end - i < n_blocks - block else n_blocks - block
        for b in range(block, block + left):
            low, high = load_f32(x + 128 * i), load_f32(x + 128 * i + 64)
            quantize_block(low, high, row_codes + 32 * width * b, row_scales + 16 * width * b, width, offset)
            i += 1


def quantize_chosen(thread, n_threads, count, order, per_row, x, codes, scales, n_blocks, width, offset):
    """Quantize row ``order[i] // per_row`` of x to row ``i``; an order of -1 is skipped."""
    rows = get_i64(count)
    for row in range(part_start(rows, thread, n_threads), part_start(rows, thread + 1, n_threads)):
        chosen = get_i32(order + 4 * row)
        row_codes, row_scales = row_places(codes, scales, row, n_blocks, width)
        for b in range(n_blocks if chosen >= 0 else 0):
            source = x + 128 * (chosen // per_row * n_blocks + b)
            low, high = load_f32(source), load_f32(source + 64)
            quantize_block(low, high, row_codes + 32 * width * b, row_scales + 16 * width * b, width, offset)
