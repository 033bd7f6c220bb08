"""Q4_K and Q5_K: blocks of 8 groups of 32 numbers, with 6 bits each of scale and minimum."""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.kernels.quantizers.fit import affine
from pumice_cpu.kernels.quantizers.groups import bits, codes_in_order, load_columns, load_groups, weigh
from pumice_cpu.kernels.quantizers.scales import as_half, share, share_by_descent
from pumice_cpu.simd import (
    absolute,
    choose_i32,
    clamp_i32,
    get_f32,
    get_i32,
    load_f32,
    nearest_i32,
    put_f32,
    put_u8,
    registers_f32,
    registers_i32,
    shift_left_i32,
    shift_right_i32,
    splat_f32,
    splat_i32,
    square_root,
    store_f32,
    store_i8,
)

# Offsets in the scratch memory, in bytes.
SCALES, MINIMA, WEIGHTS, SCALE_CODES, MINIMUM_CODES, FACTORS, OFFSETS = range(0, 7 * 64, 64)


def _kernel(n_max, first, n_steps, block_bytes, pack, weighted):
    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        """Quantize two blocks at a time; ``values`` has room for an even number of blocks."""
        x, w, codes = registers_f32(32), registers_f32(32), registers_i32(32)
        for block in range(0, n_blocks, 2):
            load_groups(values + 1024 * block, 32, x)
            if weighted:
                load_columns(weights, 256 * block % n_columns, n_columns, 32, w)
                two = splat_f32(np.float32(2) * get_f32(sums + 4 * block) / np.float32(256))
                _put_second(scratch, two, np.float32(2) * get_f32(sums + 4 * block + 4) / np.float32(256))
                weigh(x, 32, load_f32(scratch), w)
                total = splat_f32(np.float32(0))
                for i in range(32):
                    total = total + w[i]
                store_f32(scratch + WEIGHTS, total)
                scale, low = affine(x, w, 32, n_max, -0.9, 0.05, 36, False, True, codes)
            else:
                squares = splat_f32(np.float32(0))
                for i in range(32):
                    squares = squares + x[i] * x[i]
                level = square_root(squares / splat_f32(np.float32(32)))
                for i in range(32):
                    w[i] = level + absolute(x[i])
                scale, low = affine(x, w, 32, n_max, first, 0.1, n_steps, False, False, codes)
            store_f32(scratch + SCALES, scale)
            store_f32(scratch + MINIMA, splat_f32(np.float32(0)) - low)
            store_f32(scratch + FACTORS, splat_f32(np.float32(0)))
            for half in range(2):
                if block + half < n_blocks:
                    _share(scratch, half, out + block_bytes * (block + half), weighted)
            _round_again(x, load_f32(scratch + FACTORS), load_f32(scratch + OFFSETS), n_max, codes)
            low_rows, high_rows = registers_f32(16), registers_f32(16)
            codes_in_order(codes, 0, low_rows)
            codes_in_order(codes, 1, high_rows)
            for half in range(2):
                if block + half < n_blocks:
                    pack(low_rows, high_rows, 8 * half, out + block_bytes * (block + half) + 16)

    return quantize


@inline
def _put_second(scratch, both, second):
    store_f32(scratch, both)
    for i in range(8, 16):
        put_f32(scratch + 4 * i, second)


@inline
def _share(scratch, half, out, weighted):
    """Store a block's scales, and the factors and offsets of its codes in the scratch memory."""
    group = scratch + 32 * half
    if weighted:
        d = share_by_descent(group + SCALES, group + WEIGHTS, 8, 63, group + SCALE_CODES)
        d_min = share_by_descent(group + MINIMA, group + WEIGHTS, 8, 63, group + MINIMUM_CODES)
    else:
        d = share(group + SCALES, 8, 63, group + SCALE_CODES)
        d_min = share(group + MINIMA, 8, 63, group + MINIMUM_CODES)
    d, d_min = as_half(out, d), as_half(out + 2, d_min)
    for i in range(8):
        put_f32(group + FACTORS + 4 * i, d * np.float32(get_i32(group + SCALE_CODES + 4 * i)))
        put_f32(group + OFFSETS + 4 * i, d_min * np.float32(get_i32(group + MINIMUM_CODES + 4 * i)))
    for i in range(4):
        scale, scale_4 = get_i32(group + SCALE_CODES + 4 * i), get_i32(group + SCALE_CODES + 4 * i + 16)
        minimum, minimum_4 = get_i32(group + MINIMUM_CODES + 4 * i), get_i32(group + MINIMUM_CODES + 4 * i + 16)
        put_u8(out + 4 + i, np.int32(scale | (scale_4 >> 4) << 6))
        put_u8(out + 8 + i, np.int32(minimum | (minimum_4 >> 4) << 6))
        put_u8(out + 12 + i, np.int32((scale_4 & 15) | (minimum_4 & 15) << 4))


@inline
def _round_again(x, factor, offset, n_max, codes):
    """Round codes again for the stored scales; groups whose scale became 0 keep their codes."""
    nothing = factor == splat_f32(np.float32(0))
    for i in range(32):
        code = clamp_i32(nearest_i32((x[i] + offset) / factor), np.int32(0), np.int32(n_max))
        codes[i] = choose_i32(nothing, codes[i], code)


@inline
def _pack_q4_k(low_rows, high_rows, first, out):
    for pair in range(4):
        group = first + 2 * pair
        left = bits(low_rows, group) | shift_left_i32(bits(low_rows, group + 1), np.int32(4))
        right = bits(high_rows, group) | shift_left_i32(bits(high_rows, group + 1), np.int32(4))
        store_i8(out + 32 * pair, left)
        store_i8(out + 32 * pair + 16, right)


@inline
def _pack_q5_k(low_rows, high_rows, first, out):
    left = right = splat_i32(np.int32(0))
    for group in range(8):
        left = left | shift_left_i32(shift_right_i32(bits(low_rows, first + group), np.int32(4)), np.int32(group))
        right = right | shift_left_i32(shift_right_i32(bits(high_rows, first + group), np.int32(4)), np.int32(group))
    store_i8(out, left)
    store_i8(out + 16, right)
    low_bits = splat_i32(np.int32(15))
    for pair in range(4):
        group = first + 2 * pair
        a = (bits(low_rows, group) & low_bits) | shift_left_i32(bits(low_rows, group + 1) & low_bits, np.int32(4))
        b = (bits(high_rows, group) & low_bits) | shift_left_i32(bits(high_rows, group + 1) & low_bits, np.int32(4))
        store_i8(out + 32 + 32 * pair, a)
        store_i8(out + 48 + 32 * pair, b)


def q4_k(kind):
    return _kernel(15, -1.0, 20, 144, _pack_q4_k, kind == "weighted")


def q5_k(kind):
    return _kernel(31, -0.5, 15, 176, _pack_q5_k, kind == "weighted")
