"""IQ4_NL and IQ4_XS: codes for sixteen values that are denser near 0; 32 numbers share a scale."""

from __future__ import annotations

import numpy as np

from pumice.plugin import GGMLType
from pumice.plugin.unstable import CODINGS
from pumice_cpu.kernels.common import inline
from pumice_cpu.kernels.quantizers.fit import SMALLEST, farthest_from_zero
from pumice_cpu.kernels.quantizers.groups import bits, codes_in_order, load_columns, load_groups, weigh
from pumice_cpu.kernels.quantizers.scales import farthest
from pumice_cpu.simd import (
    choose_f32,
    choose_i32,
    get_f32,
    get_i32,
    lane,
    load_f32,
    nearest,
    put_f16,
    put_f32,
    put_i32,
    put_u8,
    put_u16,
    registers_f32,
    registers_i32,
    shift_left_i32,
    splat_f32,
    splat_i32,
    store_f32,
    store_i8,
)

VALUES = CODINGS[GGMLType.IQ4_NL].values
LOWEST = np.float32(VALUES[0])


@inline
def _nearest_value(x):
    """Return the code of the table's value nearest to each number, and the value. Ties take the upper one.

    NaN gets the last code.
    """
    code = splat_i32(np.int32(0))
    low = splat_f32(np.float32(VALUES[0]))
    high = splat_f32(np.float32(VALUES[1]))
    for i in range(1, 15):
        beyond = x < splat_f32(np.float32(VALUES[i]))
        code = choose_i32(beyond, code, splat_i32(np.int32(i)))
        low = choose_f32(beyond, low, splat_f32(np.float32(VALUES[i])))
        high = choose_f32(beyond, high, splat_f32(np.float32(VALUES[i + 1])))
    below = x - low < high - x
    return choose_i32(below, code, code + splat_i32(np.int32(1))), choose_f32(below, low, high)


@inline
def _sums(x, w, inverse):
    """Return the sums of weight * value * number and of weight * value², for the values nearest to ``inverse * x``."""
    sum_qx = splat_f32(np.float32(0))
    sum_q2 = splat_f32(np.float32(0))
    for i in range(32):
        _, value = _nearest_value(inverse * x[i])
        sum_qx = sum_qx + w[i] * value * x[i]
        sum_q2 = sum_q2 + w[i] * value * value
    return sum_qx, sum_q2


@inline
def _fit(x, w):
    """Return the scale with the least error for each of sixteen groups."""
    zero, one = splat_f32(np.float32(0)), splat_f32(np.float32(1))
    magnitude, peak = farthest_from_zero(x, 32)
    sum_qx, sum_q2 = _sums(x, w, one / ((zero - peak) / splat_f32(LOWEST)))
    scale = choose_f32(sum_q2 > zero, sum_qx / sum_q2, zero)
    best = scale * sum_qx
    for step in range(-7, 8):
        sum_qx, sum_q2 = _sums(x, w, splat_f32(np.float32(step) + LOWEST) / peak)
        better = (sum_q2 > zero) & (sum_qx * sum_qx > best * sum_q2)
        scale = choose_f32(better, sum_qx / sum_q2, scale)
        best = choose_f32(better, scale * sum_qx, best)
    return choose_f32(magnitude < splat_f32(SMALLEST), zero, scale)


@inline
def _inverse(d):
    zero = splat_f32(np.float32(0))
    return choose_f32(d == zero, zero, splat_f32(np.float32(1)) / d)


@inline
def _pack(x, inverse, rows):
    """Pack 16 bytes per group: low nibbles of the first half, high nibbles of the second."""
    codes = registers_i32(16)
    for i in range(16):
        low, _ = _nearest_value(inverse * x[i])
        high, _ = _nearest_value(inverse * x[16 + i])
        codes[i] = low | shift_left_i32(high, np.int32(4))
    codes_in_order(codes, 0, rows)


@inline
def _plain_weights(x, w):
    for i in range(32):
        w[i] = x[i] * x[i]


def iq4_nl(kind):
    weighted = kind == "weighted"

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        """Quantize sixteen blocks at a time."""
        x, w, rows = registers_f32(32), registers_f32(32), registers_f32(16)
        for block in range(0, n_blocks, 16):
            load_groups(values + 128 * block, 32, x)
            if weighted:
                load_columns(weights, 32 * block % n_columns, n_columns, 32, w)
                square = splat_f32(np.float32(0))
                for i in range(32):
                    square = square + x[i] * x[i]
                weigh(x, 32, square * splat_f32(np.float32(1 / 16)), w)
            else:
                _plain_weights(x, w)
            scale = _fit(x, w)
            _pack(x, _inverse(scale), rows)
            for i in range(16):
                if block + i < n_blocks:
                    put_f16(out + 18 * (block + i), lane(scale, i))
                    store_i8(out + 18 * (block + i) + 2, bits(rows, i))

    return quantize


def iq4_xs(kind):
    weighted = kind == "weighted"

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        """Quantize two blocks of 8 groups at a time."""
        x, w, rows = registers_f32(32), registers_f32(32), registers_f32(16)
        for block in range(0, n_blocks, 2):
            load_groups(values + 1024 * block, 32, x)
            if weighted:
                load_columns(weights, 256 * block % n_columns, n_columns, 32, w)
                for i in range(16):
                    put_f32(scratch + 4 * i, get_f32(sums + 4 * (block + i // 8)) * np.float32(2 / 256))
                weigh(x, 32, load_f32(scratch), w)
            else:
                _plain_weights(x, w)
            store_f32(scratch, _fit(x, w))
            store_f32(scratch + 64, splat_f32(np.float32(0)))
            for half in range(2):
                if block + half < n_blocks:
                    _share(scratch + 32 * half, out + 136 * (block + half))
            _pack(x, _inverse(load_f32(scratch + 64)), rows)
            for half in range(2):
                if block + half < n_blocks:
                    for i in range(8):
                        store_i8(out + 136 * (block + half) + 8 + 16 * i, bits(rows, 8 * half + i))

    return quantize


@inline
def _share(scales, out):
    """Store 6-bit signed scales plus 32, high two bits apart; the scales' values go 64 bytes further."""
    d = -farthest(scales, 8) / np.float32(32)
    inverse = np.float32(1) / d if d != np.float32(0) else np.float32(0)
    put_f16(out, d)
    high = np.int32(0)
    for i in range(8):
        code = nearest(inverse * get_f32(scales + 4 * i))
        code = code if code > -32 else np.int32(-32)
        code = code if code < 31 else np.int32(31)
        put_f32(scales + 64 + 4 * i, d * np.float32(code))
        put_i32(scales + 128 + 4 * i, np.int32(code + 32))
        high = np.int32(high | (code + 32) >> 4 << 2 * i)
    put_u16(out + 2, high)
    for i in range(4):
        low, next_low = get_i32(scales + 128 + 8 * i) & 15, get_i32(scales + 132 + 8 * i) & 15
        put_u8(out + 4 + i, np.int32(low | next_low << 4))
