"""Activations to int8: blocks of 32 with a float32 scale, and the sums of each half block's int8."""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import part_start
from pumice_cpu.simd import (
    absolute,
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


def quantize(thread, n_threads, count, x, codes, scales, sums, n_blocks):
    """Rows of ``n_blocks`` blocks of float32 ``x``. ``count`` is the address of the number of rows."""
    total = get_i64(count) * n_blocks
    for block in range(part_start(total, thread, n_threads), part_start(total, thread + 1, n_threads)):
        source = x + 128 * block
        low, high = load_f32(source), load_f32(source + 64)
        scale = max_lanes(maximum(absolute(low), absolute(high))) / np.float32(127)
        inverse = np.float32(1) / scale if scale > np.float32(0) else np.float32(0)
        low_codes = round_to_i32(low * splat_f32(inverse))
        high_codes = round_to_i32(high * splat_f32(inverse))
        store_i8(codes + 32 * block, low_codes)
        store_i8(codes + 32 * block + 16, high_codes)
        put_f32(scales + 4 * block, scale)
        put_i32(sums + 8 * block, sum_lanes_i32(low_codes))
        put_i32(sums + 8 * block + 4, sum_lanes_i32(high_codes))
