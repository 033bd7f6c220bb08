"""Types whose codes stand for a few values: TQ1_0 and TQ2_0 (-1, 0, 1) and MXFP4. Lanes are adjacent numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import GGMLType
from pumice.plugin.unstable import CODINGS
from pumice_cpu.kernels.common import inline
from pumice_cpu.simd import (
    absolute,
    bits_f32,
    choose_f32,
    choose_i32,
    f32_bits,
    get_i32,
    load_f32,
    max_lanes,
    maximum,
    put_f16,
    put_i32,
    put_u8,
    registers_i32,
    round_away,
    shift_left_i32,
    shift_right_i32,
    splat_f32,
    splat_i32,
    store_i8,
    store_i32,
)


@inline
def _trits(place, codes):
    """Encode 256 numbers as 0, 1 and 2 for -d, 0 and d; return d, the largest magnitude."""
    largest = absolute(load_f32(place))
    for i in range(1, 16):
        largest = maximum(absolute(load_f32(place + 64 * i)), largest)
    d = max_lanes(largest)
    inverse = np.float32(1) / d if d > np.float32(0) else np.float32(0)
    for i in range(16):
        codes[i] = round_away(load_f32(place + 64 * i) * splat_f32(inverse)) + splat_i32(np.int32(1))
    return d


def tq2_0(kind):
    """Store each 128 codes in 32 bytes, lowest two bits first."""

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        codes = registers_i32(16)
        for block in range(n_blocks):
            block_out = out + 66 * block
            put_f16(block_out + 64, _trits(values + 1024 * block, codes))
            for i in range(4):
                first = i // 2 * 8 + i % 2
                packed = codes[first]
                for part in range(1, 4):
                    packed = packed | shift_left_i32(codes[first + 2 * part], np.int32(2 * part))
                store_i8(block_out + 16 * i, packed)

    return quantize


@inline
def _as_byte(number):
    """Encode five trits (0 to 242) so that a decoder gets each digit as the integer part of three times the byte / 256.

    The byte is number * 256 / 243 rounded up, computed as a product with 2^24 / 243.
    """
    scaled = shift_left_i32(number, np.int32(8)) + splat_i32(np.int32(242))
    return shift_right_i32(scaled * splat_i32(np.int32(69043)), np.int32(24))


@inline
def _five(codes, first, step):
    three = splat_i32(np.int32(3))
    number = codes[first]
    for i in range(1, 5):
        number = number * three + codes[first + step * i]
    return _as_byte(number)


def tq1_0(kind):
    """Store five trits a byte: 32 bytes of every 32nd, 16 bytes of every 16th, and the last 16 as 4 bytes of four."""

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        codes = registers_i32(16)
        for block in range(n_blocks):
            block_out = out + 54 * block
            put_f16(block_out + 52, _trits(values + 1024 * block, codes))
            store_i8(block_out, _five(codes, 0, 2))
            store_i8(block_out + 16, _five(codes, 1, 2))
            store_i8(block_out + 32, _five(codes, 10, 1))
            store_i32(scratch, codes[15])
            for i in range(4):
                number = 0
                for part in range(4):
                    number = 3 * (number + get_i32(scratch + 4 * i + 16 * part))
                put_i32(scratch + 64 + 4 * i, np.int32(number))
            for i in range(4):
                put_u8(block_out + 48 + i, np.int32((get_i32(scratch + 64 + 4 * i) * 256 + 242) // 243))

    return quantize


MXFP4_VALUES = CODINGS[GGMLType.MXFP4].values


def _rounded_up() -> NDArray[Any]:
    """By e: the number of float32 just below 2^(e - 126) whose float32 logarithm rounds up to e - 126."""
    counts = np.zeros(256, np.int64)
    for e in range(1, 255):
        last = (np.int64(e + 1) << 23) - 1
        below = (last - np.arange(128)).astype(np.int32).view(np.float32)
        counts[e] = np.count_nonzero(np.log2(below.astype(np.float64)).astype(np.float32) == e - 126)
    return counts


ROUNDED_UP = _rounded_up()


@inline
def _exponent(largest):
    """Return floor(log2(largest)) - 2 + 127 as a byte, with the logarithm first rounded to float32."""
    if largest == np.float32(0):
        return 0
    raw = f32_bits(largest)
    e = raw >> 23
    if e == 0:  # subnormal: 2^-149 times an integer, whose highest bit gives the exponent
        power = -150
        while raw:
            raw >>= 1
            power += 1
    else:
        power = e - 127
        if (raw & 0x7FFFFF) >= (1 << 23) - ROUNDED_UP[e]:
            power += 1
    return (power - 2 + 127) & 255


@inline
def _half_scale(e):
    """Return half of 2^(e - 127) as float32."""
    return bits_f32(0x200000 << e if e < 2 else (e - 1) << 23)


def mxfp4(kind):
    """Store a power of two for 32 numbers, and the code of the nearest value for each; ties take the lowest code."""

    def quantize(values, weights, sums, scratch, out, n_blocks, n_columns):
        codes = registers_i32(2)
        for block in range(n_blocks):
            place, block_out = values + 128 * block, out + 17 * block
            largest = max_lanes(maximum(absolute(load_f32(place)), absolute(load_f32(place + 64))))
            e = _exponent(largest)
            scale = _half_scale(e)
            for half in range(2):
                x = load_f32(place + 64 * half)
                code, nearest = splat_i32(np.int32(0)), absolute(x)
                for i in range(1, 16):
                    error = absolute(splat_f32(np.float32(MXFP4_VALUES[i]) * scale) - x)
                    closer = error < nearest
                    code = choose_i32(closer, splat_i32(np.int32(i)), code)
                    nearest = choose_f32(closer, error, nearest)
                codes[half] = code
            put_u8(block_out, np.int32(e))
            store_i8(block_out + 1, codes[0] | shift_left_i32(codes[1], np.int32(4)))

    return quantize
