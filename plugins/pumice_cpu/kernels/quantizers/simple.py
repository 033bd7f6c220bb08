"""Types with one scale per block: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q1_0, Q2_0; one block per lane.

With an importance matrix the first four search for a better scale.
"""

from __future__ import annotations

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.kernels.quantizers.fit import affine, farthest_from_zero, symmetric
from pumice_cpu.kernels.quantizers.groups import bits, codes_in_order, load_columns, load_groups, weigh
from pumice_cpu.simd import (
    absolute,
    choose_f32,
    clamp_i32,
    get_f32,
    lane,
    lane_i32,
    load_f32,
    maximum,
    minimum,
    ones,
    put_f16,
    put_f32,
    put_i32,
    registers_f32,
    registers_i32,
    round_away,
    shift_left_i32,
    shift_right_i32,
    splat_f32,
    splat_i32,
    store_i8,
    truncate_any,
)


@inline
def _inverse(d):
    zero = splat_f32(np.float32(0))
    return choose_f32(d == zero, zero, splat_f32(np.float32(1)) / d)


@inline
def _row_weights(x, weights, sums, scratch, block, n_columns, w):
    """Multiply the importance matrix's weights by a function of the numbers and the mean square of their row."""
    load_columns(weights, 32 * block % n_columns, n_columns, 32, w)
    for i in range(16):
        put_f32(scratch + 4 * i, get_f32(sums + 4 * (32 * (block + i) // n_columns)) / np.float32(n_columns))
    weigh(x, 32, load_f32(scratch), w)


@inline
def _pack(codes, five_bits, block, n_blocks, out, block_bytes):
    """Store the codes of 32 numbers at the end of each block: low nibbles of the first half, high ones of the second.

    Fifth bits are stored before them.
    """
    fifth = splat_i32(np.int32(0))
    one, low = splat_i32(np.int32(1)), splat_i32(np.int32(15))
    if five_bits:
        for i in range(32):
            fifth = fifth | shift_left_i32(shift_right_i32(codes[i], np.int32(4)) & one, np.int32(i))
    rows = registers_f32(16)
    for i in range(16):
        codes[i] = (codes[i] & low) | shift_left_i32(codes[16 + i] & low, np.int32(4))
    codes_in_order(codes, 0, rows)
    for i in range(16):
        if block + i < n_blocks:
            end = out + block_bytes * (block + i + 1)
            store_i8(end - 16, bits(rows, i))
            if five_bits:
                put_i32(end - 20, lane_i32(fifth, i))


@inline
def _put_halves(values, block, n_blocks, out, block_bytes):
    for i in range(16):
        if block + i < n_blocks:
            put_f16(out + block_bytes * (block + i), lane(values, i))


def _symmetric(n_max, block_bytes, weighted):
    """Return a kernel for codes up to ``n_max``, around the number that is farthest from 0."""

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        x, w, codes = registers_f32(32), registers_f32(32), registers_i32(32)
        for block in range(0, n_blocks, 16):
            load_groups(values + 128 * block, 32, x)
            if weighted:
                _row_weights(x, weights, sums, scratch, block, n_columns, w)
                d = symmetric(x, w, 32, n_max, codes)
            else:
                _, peak = farthest_from_zero(x, 32)
                d = peak / splat_f32(np.float32(-n_max))
                inverse = _inverse(d)
                middle = splat_f32(np.float32(n_max + 0.5))
                for i in range(32):
                    code = truncate_any(x[i] * inverse + middle)
                    codes[i] = clamp_i32(code, np.int32(0), np.int32(2 * n_max - 1))
            _put_halves(d, block, n_blocks, out, block_bytes)
            _pack(codes, n_max == 16, block, n_blocks, out, block_bytes)

    return quantize


def _affine(n_max, block_bytes, weighted):
    """Return a kernel for codes 0 to ``n_max`` from the smallest number to the largest."""

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        x, w, codes = registers_f32(32), registers_f32(32), registers_i32(32)
        for block in range(0, n_blocks, 16):
            load_groups(values + 128 * block, 32, x)
            if weighted:
                _row_weights(x, weights, sums, scratch, block, n_columns, w)
                d, low = affine(x, w, 32, n_max, -0.9, 0.05, 36, False, True, codes)
            else:
                low = high = x[0]
                for i in range(1, 32):
                    low, high = minimum(x[i], low), maximum(x[i], high)
                d = (high - low) / splat_f32(np.float32(n_max))
                inverse = _inverse(d)
                half = splat_f32(np.float32(0.5))
                for i in range(32):
                    code = truncate_any((x[i] - low) * inverse + half)
                    codes[i] = clamp_i32(code, np.int32(0), np.int32(n_max))
            _put_halves(d, block, n_blocks, out, block_bytes)
            _put_halves(low, block, n_blocks, out + 2, block_bytes)
            _pack(codes, n_max == 31, block, n_blocks, out, block_bytes)

    return quantize


def q4_0(kind):
    return _symmetric(8, 18, kind == "weighted")


def q5_0(kind):
    return _symmetric(16, 22, kind == "weighted")


def q4_1(kind):
    return _affine(15, 20, kind == "weighted")


def q5_1(kind):
    return _affine(31, 24, kind == "weighted")


def q8_0(kind):
    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        x, rows, codes = registers_f32(32), registers_f32(16), registers_i32(32)
        for block in range(0, n_blocks, 16):
            load_groups(values + 128 * block, 32, x)
            magnitude, _ = farthest_from_zero(x, 32)
            d = magnitude / splat_f32(np.float32(127))
            inverse = _inverse(d)
            for i in range(32):
                codes[i] = round_away(x[i] * inverse)
            _put_halves(d, block, n_blocks, out, 34)
            for half in range(2):
                codes_in_order(codes, half, rows)
                for i in range(16):
                    if block + i < n_blocks:
                        store_i8(out + 34 * (block + i) + 2 + 16 * half, bits(rows, i))

    return quantize


def q1_0(kind):
    """128 numbers: their mean magnitude, and a bit that is set for non-negative numbers."""

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        x = registers_f32(128)
        zero = splat_f32(np.float32(0))
        for block in range(0, n_blocks, 16):
            load_groups(values + 512 * block, 128, x)
            total = zero
            for i in range(128):
                total = total + absolute(x[i])
            _put_halves(total / splat_f32(np.float32(128)), block, n_blocks, out, 18)
            for word in range(4):
                packed = splat_i32(np.int32(0))
                for i in range(32):
                    packed = packed | shift_left_i32(ones(x[32 * word + i] >= zero), np.int32(i))
                _put_words(packed, block, n_blocks, out + 2 + 4 * word, 18)

    return quantize


def q2_0(kind):
    """64 numbers: the largest magnitude, and codes -1, 0, 1 and 2 plus 1."""

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        x = registers_f32(64)
        one = splat_i32(np.int32(1))
        for block in range(0, n_blocks, 16):
            load_groups(values + 256 * block, 64, x)
            d, _ = farthest_from_zero(x, 64)
            inverse = _inverse(d)
            _put_halves(d, block, n_blocks, out, 18)
            for word in range(4):
                packed = splat_i32(np.int32(0))
                for i in range(16):
                    code = clamp_i32(round_away(x[16 * word + i] * inverse) + one, np.int32(0), np.int32(3))
                    packed = packed | shift_left_i32(code, np.int32(2 * i))
                _put_words(packed, block, n_blocks, out + 2 + 4 * word, 18)

    return quantize


@inline
def _put_words(words, block, n_blocks, out, block_bytes):
    for i in range(16):
        if block + i < n_blocks:
            put_i32(out + block_bytes * (block + i), lane_i32(words, i))
