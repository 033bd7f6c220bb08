"""Unpacking of the rarer types to int8 codes and float32 scales during a product (layouts: ggml-common.h).

A function ``unpack(block, table, codes, scales, row)`` writes one block of a row into a tile: codes in the layout of 8
bits in formats.py, scales as float32 for each half block of 32 columns. ``table`` is the type's table in
lower/tables.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice_cpu.kernels.common import inline
from pumice_cpu.simd import get_f16, get_f32, get_i32, get_i64, get_u8, get_u16, put_f32, put_i32

SIGNS = 2048  # offset of the grid in the table, behind a 64-bit mask for each byte of signs
ONES = 0x0101010101010101
LOW_BYTES = 0x00FF00FF00FF00FF


@inline
def _put_4(codes, column, row, word):
    put_i32(codes + (column >> 5) * 512 + ((column >> 2) & 7) * 64 + 4 * row, np.int32(word))


@inline
def _put_8(codes, column, row, word):
    """Store codes of eight columns, the first in the low byte."""
    _put_4(codes, column, row, word & 0xFFFFFFFF)
    _put_4(codes, column + 4, row, word >> 32)


@inline
def _put_scale(scales, column, row, value):
    """Store the scale of 16 columns."""
    put_f32(scales + (column >> 4) * 64 + 4 * row, value)


@inline
def _put_scale_32(scales, column, row, value):
    _put_scale(scales, column, row, value)
    _put_scale(scales, column + 16, row, value)


@inline
def _signed(values, mask):
    """Negate the bytes (1 to 127) where the mask has ones."""
    return (values ^ mask) + (mask & ONES)


@inline
def _less_one(bytes):
    """Subtract one from each byte (0 to 127)."""
    return ((bytes | (ONES << 7)) - ONES) ^ (ONES << 7)


@inline
def _half_steps(d, step):
    """Return the scale d (0.5 + step) / 4 of the 2-bit types."""
    return d * (np.float32(0.5) + np.float32(step)) * np.float32(0.25)


@inline
def _unsigned_i32(place):
    return np.int64(get_i32(place)) & 0xFFFFFFFF


@inline
def q8_1(block, table, codes, scales, row):
    for i in range(4):
        _put_8(codes, 8 * i, row, get_i64(block + 4 + 8 * i))
    _put_scale_32(scales, 0, row, get_f16(block))


@inline
def q8_k(block, table, codes, scales, row):
    for i in range(32):
        _put_8(codes, 8 * i, row, get_i64(block + 4 + 8 * i))
    for part in range(8):
        _put_scale_32(scales, 32 * part, row, get_f32(block))


@inline
def q1_0(block, table, codes, scales, row):
    """Unpack signs of 128 columns: a set bit is 1, a clear one -1."""
    for i in range(16):
        mask = get_i64(table + 8 * np.int64(get_u8(block + 2 + i)))
        _put_8(codes, 8 * i, row, _less_one(mask & (2 * ONES)))
    for part in range(4):
        _put_scale_32(scales, 32 * part, row, get_f16(block))


@inline
def nvfp4(block, table, codes, scales, row):
    """Parts of 16 columns with an 8-bit scale. The table has a pair of codes for each byte, then all scales."""
    for part in range(4):
        low, high = np.int64(0), np.int64(0)
        for i in range(8):
            pair = np.int64(get_u16(table + 2 * np.int64(get_u8(block + 4 + 8 * part + i))))
            low |= (pair & 255) << (8 * i)
            high |= (pair >> 8) << (8 * i)
        _put_8(codes, 16 * part, row, low)
        _put_8(codes, 16 * part + 8, row, high)
        _put_scale(scales, 16 * part, row, get_f32(table + 512 + 4 * np.int64(get_u8(block + part))))


@inline
def _trits(bytes, power):
    """Return one base-3 digit of eight bytes, minus one; a byte is its number divided by 243, in 256ths."""
    even = (((bytes & LOW_BYTES) * power) & LOW_BYTES) * 3
    odd = ((((bytes >> 8) & LOW_BYTES) * power) & LOW_BYTES) * 3
    return _less_one(((even >> 8) & (3 * 0x0001000100010001)) | (odd & (3 * 0x0100010001000100)))


@inline
def tq1_0(block, table, codes, scales, row):
    power = np.int64(1)
    for place in range(5):
        for i in range(4):
            _put_8(codes, 32 * place + 8 * i, row, _trits(get_i64(block + 8 * i), power))
        for i in range(2):
            _put_8(codes, 160 + 16 * place + 8 * i, row, _trits(get_i64(block + 32 + 8 * i), power))
        if place < 4:
            _put_4(codes, 240 + 4 * place, row, _trits(_unsigned_i32(block + 48), power) & 0xFFFFFFFF)
        power *= 3
    for part in range(8):
        _put_scale_32(scales, 32 * part, row, get_f16(block + 52))


@inline
def tq2_0(block, table, codes, scales, row):
    for part in range(2):
        for plane in range(4):
            for i in range(4):
                both = (get_i64(block + 32 * part + 8 * i) >> (2 * plane)) & (3 * ONES)
                _put_8(codes, 128 * part + 32 * plane + 8 * i, row, _less_one(both))
    for part in range(8):
        _put_scale_32(scales, 32 * part, row, get_f16(block + 64))


@inline
def iq2_xxs(block, table, codes, scales, row):
    for part in range(8):
        source = block + 2 + 8 * part
        signs = _unsigned_i32(source + 4)
        for i in range(4):
            grid = get_i64(table + SIGNS + 8 * np.int64(get_u8(source + i)))
            mask = get_i64(table + 8 * ((signs >> (7 * i)) & 127))
            _put_8(codes, 32 * part + 8 * i, row, _signed(grid, mask))
        _put_scale_32(scales, 32 * part, row, _half_steps(get_f16(block), signs >> 28))


@inline
def iq2_xs(block, table, codes, scales, row):
    for i in range(32):
        both = np.int64(get_u16(block + 2 + 2 * i))
        grid, mask = get_i64(table + SIGNS + 8 * (both & 511)), get_i64(table + 8 * (both >> 9))
        _put_8(codes, 8 * i, row, _signed(grid, mask))
    for part in range(16):
        step = (get_u8(block + 66 + (part >> 1)) >> (4 * (part & 1))) & 15
        _put_scale(scales, 16 * part, row, _half_steps(get_f16(block), step))


@inline
def iq2_s(block, table, codes, scales, row):
    for i in range(32):
        high = (np.int64(get_u8(block + 66 + (i >> 2))) >> (2 * (i & 3))) & 3
        grid = get_i64(table + SIGNS + 8 * (np.int64(get_u8(block + 2 + i)) | (high << 8)))
        mask = get_i64(table + 8 * np.int64(get_u8(block + 34 + i)))
        _put_8(codes, 8 * i, row, _signed(grid, mask))
    for part in range(16):
        step = (get_u8(block + 74 + (part >> 1)) >> (4 * (part & 1))) & 15
        _put_scale(scales, 16 * part, row, _half_steps(get_f16(block), step))


@inline
def _two_grids(table, first, second):
    low, high = table + SIGNS + 4 * np.int64(first), table + SIGNS + 4 * np.int64(second)
    return _unsigned_i32(low) | (np.int64(get_i32(high)) << 32)


@inline
def iq3_xxs(block, table, codes, scales, row):
    for part in range(8):
        signs = _unsigned_i32(block + 66 + 4 * part)
        for i in range(4):
            source = block + 2 + 8 * part + 2 * i
            mask = get_i64(table + 8 * ((signs >> (7 * i)) & 127))
            _put_8(codes, 32 * part + 8 * i, row, _signed(_two_grids(table, get_u8(source), get_u8(source + 1)), mask))
        scale = get_f16(block) * (np.float32(0.5) + np.float32(signs >> 28)) * np.float32(0.5)
        _put_scale_32(scales, 32 * part, row, scale)


@inline
def iq3_s(block, table, codes, scales, row):
    for part in range(8):
        high = np.int64(get_u8(block + 66 + part))
        for i in range(4):
            source = block + 2 + 8 * part + 2 * i
            first = np.int64(get_u8(source)) | (((high >> (2 * i)) & 1) << 8)
            second = np.int64(get_u8(source + 1)) | (((high >> (2 * i + 1)) & 1) << 8)
            mask = get_i64(table + 8 * np.int64(get_u8(block + 74 + 4 * part + i)))
            _put_8(codes, 32 * part + 8 * i, row, _signed(_two_grids(table, first, second), mask))
        step = (get_u8(block + 106 + (part >> 1)) >> (4 * (part & 1))) & 15
        _put_scale_32(scales, 32 * part, row, get_f16(block) * np.float32(1 + 2 * step))


# The values of IQ1 are -1, 0 or 1, plus or minus an eighth. The table has eight times these values, first for all grids
# shifted up, then for all shifted down.


@inline
def iq1_s(block, table, codes, scales, row):
    for part in range(8):
        high = np.int64(get_u16(block + 34 + 2 * part))
        for i in range(4):
            index = np.int64(get_u8(block + 2 + 4 * part + i)) | (((high >> (3 * i)) & 7) << 8)
            _put_8(codes, 32 * part + 8 * i, row, get_i64(table + 8 * (index | ((high >> 15) << 11))))
        step = np.float32(2 * ((high >> 12) & 7) + 1)
        _put_scale_32(scales, 32 * part, row, get_f16(block) * step * np.float32(0.125))


@inline
def iq1_m(block, table, codes, scales, row):
    """The float16 scale is assembled from the high nibbles of the four int16 that hold the scales of parts."""
    bits = np.int64(0)
    for i in range(4):
        bits |= (np.int64(get_u16(block + 48 + 2 * i)) >> 12) << (4 * i)
    put_i32(scales + 4 * row, np.int32(bits))
    d = get_f16(scales + 4 * row)
    for part in range(16):
        high = np.int64(get_u8(block + 32 + part))
        for i in range(2):
            more = (high >> (4 * i)) & 15
            index = np.int64(get_u8(block + 2 * part + i)) | ((more & 7) << 8) | ((more >> 3) << 11)
            _put_8(codes, 16 * part + 8 * i, row, get_i64(table + 8 * index))
        step = np.float32(2 * ((get_u16(block + 48 + 2 * (part >> 2)) >> (3 * (part & 3))) & 7) + 1)
        _put_scale(scales, 16 * part, row, d * step * np.float32(0.125))


UNPACK: dict[str, Any] = {
    "q8_1": q8_1,
    "q8_k": q8_k,
    "q1_0": q1_0,
    "nvfp4": nvfp4,
    "tq1_0": tq1_0,
    "tq2_0": tq2_0,
    "iq1_s": iq1_s,
    "iq1_m": iq1_m,
    "iq2_xxs": iq2_xxs,
    "iq2_xs": iq2_xs,
    "iq2_s": iq2_s,
    "iq3_xxs": iq3_xxs,
    "iq3_s": iq3_s,
}
