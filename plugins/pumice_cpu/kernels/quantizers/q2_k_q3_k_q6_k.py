"""Q2_K, Q3_K and Q6_K: blocks of 16 groups of 16 numbers, one group per lane."""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.kernels.quantizers.fit import SMALLEST, affine, symmetric, symmetric_by_descent
from pumice_cpu.kernels.quantizers.groups import bits, codes_in_order, load_columns, load_groups, weigh
from pumice_cpu.kernels.quantizers.scales import (
    as_half,
    at_most,
    farthest,
    largest,
    share_by_descent,
    symmetric_by_trials,
)
from pumice_cpu.simd import (
    absolute,
    choose_i32,
    clamp_i32,
    get_f32,
    get_i32,
    load_f32,
    nearest,
    nearest_i32,
    put_f32,
    put_i32,
    put_u8,
    registers_f32,
    registers_i32,
    shift_left_i32,
    shift_right_i32,
    splat_f32,
    splat_i32,
    store_f32,
    store_i8,
)

# Offsets in the scratch memory, in bytes.
SCALES, MINIMA, WEIGHTS, SCALE_CODES, MINIMUM_CODES, FACTORS, OFFSETS = range(0, 7 * 64, 64)


@inline
def _weights(x, weights, block, n_columns, sigma, scratch, w):
    """Compute weights from the importance matrix and the numbers; each group's sum goes to the scratch memory."""
    load_columns(weights, 256 * block % n_columns, n_columns, 16, w)
    weigh(x, 16, splat_f32(sigma), w)
    total = splat_f32(np.float32(0))
    for i in range(16):
        total = total + w[i]
    store_f32(scratch + WEIGHTS, total)


@inline
def _round_again(x, factor, offset, low, high, codes):
    """Round codes from 0 again for the stored scales; groups whose scale became 0 keep their codes."""
    nothing = factor == splat_f32(np.float32(0))
    for i in range(16):
        code = clamp_i32(nearest_i32((x[i] + offset) / factor), np.int32(low), np.int32(high))
        codes[i] = choose_i32(nothing, codes[i], code + splat_i32(np.int32(-low)))


@inline
def _pack_quarters(rows, out):
    """Pack the low two bits of 128 codes into 32 bytes, and of the next 128 likewise."""
    three = splat_i32(np.int32(3))
    for i in range(4):
        half, group = i // 2, i // 2 * 8 + i % 2
        packed = bits(rows, group) & three
        for part in range(1, 4):
            packed = packed | shift_left_i32(bits(rows, group + 2 * part) & three, np.int32(2 * part))
        store_i8(out + 32 * half + 16 * (i % 2), packed)


# --- Q2_K


def q2_k(kind):
    weighted = kind == "weighted"

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        x, w, rows, codes = registers_f32(16), registers_f32(16), registers_f32(16), registers_i32(16)
        zero = splat_f32(np.float32(0))
        for block in range(n_blocks):
            load_groups(values + 1024 * block, 16, x)
            block_out = out + 84 * block
            if weighted:
                sigma = get_f32(sums + 4 * block) / np.float32(256)
                _weights(x, weights, block, n_columns, sigma, scratch, w)
                scale, low = affine(x, w, 16, 3, -0.9, 0.05, 36, False, True, codes)
            else:
                for i in range(16):
                    w[i] = absolute(x[i])
                scale, low = affine(x, w, 16, 3, -0.5, 0.1, 15, True, False, codes)
            store_f32(scratch + SCALES, scale)
            store_f32(scratch + MINIMA, zero - low)
            if weighted:
                d = share_by_descent(scratch + SCALES, scratch + WEIGHTS, 16, 15, scratch + SCALE_CODES)
                d_min = share_by_descent(scratch + MINIMA, scratch + WEIGHTS, 16, 15, scratch + MINIMUM_CODES)
            else:
                d = _share_q2_k(scratch + SCALES, scratch + SCALE_CODES)
                d_min = _share_q2_k(scratch + MINIMA, scratch + MINIMUM_CODES)
            _put_scales_q2_k(scratch, block_out, as_half(block_out + 80, d), as_half(block_out + 82, d_min))
            _round_again(x, load_f32(scratch + FACTORS), load_f32(scratch + OFFSETS), 0, 3, codes)
            codes_in_order(codes, 0, rows)
            _pack_quarters(rows, block_out + 16)

    return quantize


@inline
def _share_q2_k(values, codes):
    top = largest(values, 16)
    inverse = np.float32(15) / top if top > np.float32(0) else np.float32(0)
    for i in range(16):
        put_i32(codes + 4 * i, nearest(inverse * get_f32(values + 4 * i)))
    return top / np.float32(15)


@inline
def _put_scales_q2_k(scratch, out, d, d_min):
    for i in range(16):
        both = get_i32(scratch + SCALE_CODES + 4 * i) | get_i32(scratch + MINIMUM_CODES + 4 * i) << 4
        put_u8(out + i, np.int32(both))
        put_f32(scratch + FACTORS + 4 * i, d * np.float32(both & 15))
        put_f32(scratch + OFFSETS + 4 * i, d_min * np.float32((both >> 4) & 15))


# --- Q3_K


def q3_k(kind):
    weighted = kind == "weighted"

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        x, w, rows, codes = registers_f32(16), registers_f32(16), registers_f32(16), registers_i32(16)
        for block in range(n_blocks):
            load_groups(values + 1024 * block, 16, x)
            block_out = out + 110 * block
            if weighted:
                sigma = np.float32(2) * get_f32(sums + 4 * block) / np.float32(256)
                _weights(x, weights, block, n_columns, sigma, scratch, w)
                store_f32(scratch + SCALES, symmetric(x, w, 16, 4, codes))
                d = symmetric_by_trials(scratch + SCALES, scratch + WEIGHTS, 16, 32, scratch + SCALE_CODES)
            else:
                store_f32(scratch + SCALES, symmetric_by_descent(x, 16, 4, codes))
                d = _share_q3_k(scratch + SCALES, scratch + SCALE_CODES)
            _put_scales_q3_k(scratch, block_out + 96, as_half(block_out + 108, d))
            _round_again(x, load_f32(scratch + FACTORS), splat_f32(np.float32(0)), -4, 3, codes)
            codes_in_order(codes, 0, rows)
            _pack_high_q3_k(rows, block_out)
            _pack_quarters(rows, block_out + 32)

    return quantize


@inline
def _share_q3_k(values, codes):
    """Store 6-bit signed scales plus 32; all 0 if every scale is 0."""
    peak = farthest(values, 16)
    if peak == np.float32(0):
        for i in range(16):
            put_i32(codes + 4 * i, np.int32(0))
        return np.float32(0)
    inverse = np.float32(-32) / peak
    for i in range(16):
        code = at_most(nearest(inverse * get_f32(values + 4 * i)), 31)
        put_i32(codes + 4 * i, np.int32((code if code > -32 else -32) + 32))
    return np.float32(1) / inverse


@inline
def _put_scales_q3_k(scratch, out, d):
    """Store the low four bits of two codes per byte, and the high two bits of four."""
    for i in range(16):
        put_f32(scratch + FACTORS + 4 * i, d * np.float32(get_i32(scratch + SCALE_CODES + 4 * i) - 32))
    for i in range(8):
        low, high = get_i32(scratch + SCALE_CODES + 4 * i), get_i32(scratch + SCALE_CODES + 4 * i + 32)
        put_u8(out + i, np.int32((low & 15) | (high & 15) << 4))
    for i in range(4):
        packed = 0
        for part in range(4):
            packed |= get_i32(scratch + SCALE_CODES + 4 * i + 16 * part) >> 4 << 2 * part
        put_u8(out + 8 + i, np.int32(packed))


@inline
def _pack_high_q3_k(rows, out):
    """Pack the third bits: bit j of a byte belongs to the j-th 32 codes."""
    for half in range(2):
        packed = splat_i32(np.int32(0))
        for part in range(8):
            third = shift_right_i32(bits(rows, 2 * part + half), np.int32(2))
            packed = packed | shift_left_i32(third, np.int32(part))
        store_i8(out + 16 * half, packed)


# --- Q6_K


def q6_k(kind):
    weighted = kind == "weighted"

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        x, w, rows, codes = registers_f32(16), registers_f32(16), registers_f32(16), registers_i32(16)
        for block in range(n_blocks):
            load_groups(values + 1024 * block, 16, x)
            block_out = out + 210 * block
            if weighted:
                load_columns(weights, 256 * block % n_columns, n_columns, 16, w)
            else:
                for i in range(16):
                    w[i] = x[i] * x[i]
            store_f32(scratch + SCALES, symmetric(x, w, 16, 32, codes))
            peak = farthest(scratch + SCALES, 16)
            if abs(peak) < SMALLEST:
                for i in range(210):
                    put_u8(block_out + i, np.int32(0))
            else:
                _put_scales_q6_k(scratch, block_out + 192, np.float32(-128) / peak)
                _round_again(x, load_f32(scratch + FACTORS), splat_f32(np.float32(0)), -32, 31, codes)
                codes_in_order(codes, 0, rows)
                _pack_q6_k(rows, block_out)

    return quantize


@inline
def _put_scales_q6_k(scratch, out, inverse):
    d = as_half(out + 16, np.float32(1) / inverse)
    for i in range(16):
        code = at_most(nearest(inverse * get_f32(scratch + SCALES + 4 * i)), 127)
        put_u8(out + i, code)
        put_f32(scratch + FACTORS + 4 * i, d * np.float32(code))


@inline
def _pack_q6_k(rows, out):
    low_bits = splat_i32(np.int32(15))
    for half in range(2):
        for i in range(4):
            group = 8 * half + i
            high = shift_left_i32(bits(rows, group + 4) & low_bits, np.int32(4))
            store_i8(out + 64 * half + 16 * i, (bits(rows, group) & low_bits) | high)
        for i in range(2):
            packed = splat_i32(np.int32(0))
            for part in range(4):
                two = shift_right_i32(bits(rows, 8 * half + i + 2 * part), np.int32(4))
                packed = packed | shift_left_i32(two, np.int32(2 * part))
            store_i8(out + 128 + 32 * half + 16 * i, packed)
