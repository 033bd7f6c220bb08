"""Unpacking of GGUF's quantized types to codes and scales, a row at a time (layouts: ggml-common.h of ggml).

Each type has two functions. ``codes(block, codes)`` writes a block's codes, one per byte, in column order.
``scales(block, place, row)`` writes a block's scales into those of a tile, as row ``row``.
"""

from __future__ import annotations

from typing import Any

from pumice_cpu.kernels.common import inline
from pumice_cpu.simd import get_u8, get_u16, put_u8, put_u16


@inline
def _nibbles(source, codes):
    """Unpack 16 bytes: low nibbles are the first half of 32 codes, high nibbles the second."""
    for i in range(16):
        both = get_u8(source + i)
        put_u8(codes + i, both & 15)
        put_u8(codes + 16 + i, both >> 4)


@inline
def _nibbles_and_bits(source, bits, codes):
    """Like ``_nibbles``, with a fifth bit for each code in 4 bytes."""
    for i in range(16):
        both = get_u8(source + i)
        low = (get_u8(bits + (i >> 3)) >> (i & 7)) & 1
        high = (get_u8(bits + 2 + (i >> 3)) >> (i & 7)) & 1
        put_u8(codes + i, (both & 15) | (low << 4))
        put_u8(codes + 16 + i, (both >> 4) | (high << 4))


@inline
def _codes_q4_0(block, codes):
    _nibbles(block + 2, codes)


@inline
def _codes_q4_1(block, codes):
    _nibbles(block + 4, codes)


@inline
def _codes_q5_0(block, codes):
    _nibbles_and_bits(block + 6, block + 2, codes)


@inline
def _codes_q5_1(block, codes):
    _nibbles_and_bits(block + 8, block + 4, codes)


@inline
def _codes_q2_0(block, codes):
    for i in range(16):
        four = get_u8(block + 2 + i)
        for n in range(4):
            put_u8(codes + 4 * i + n, (four >> (2 * n)) & 3)


@inline
def _codes_q8_0(block, codes):
    for i in range(32):
        put_u8(codes + i, get_u8(block + 2 + i))


@inline
def _codes_mxfp4(block, codes):
    _nibbles(block + 1, codes)


@inline
def _codes_iq4_xs(block, codes):
    for part in range(8):
        _nibbles(block + 8 + 16 * part, codes + 32 * part)


@inline
def _codes_q4_k(block, codes):
    for part in range(4):
        for i in range(32):
            both = get_u8(block + 16 + 32 * part + i)
            put_u8(codes + 64 * part + i, both & 15)
            put_u8(codes + 64 * part + 32 + i, both >> 4)


@inline
def _codes_q5_k(block, codes):
    for part in range(4):
        for i in range(32):
            both, high = get_u8(block + 48 + 32 * part + i), get_u8(block + 16 + i) >> (2 * part)
            put_u8(codes + 64 * part + i, (both & 15) | ((high & 1) << 4))
            put_u8(codes + 64 * part + 32 + i, (both >> 4) | ((high & 2) << 3))


@inline
def _codes_q6_k(block, codes):
    for part in range(2):
        for i in range(32):
            first, second = get_u8(block + 64 * part + i), get_u8(block + 64 * part + 32 + i)
            high, to = get_u8(block + 128 + 32 * part + i), codes + 128 * part + i
            put_u8(to, (first & 15) | ((high & 3) << 4))
            put_u8(to + 32, (second & 15) | ((high & 12) << 2))
            put_u8(to + 64, (first >> 4) | (high & 48))
            put_u8(to + 96, (second >> 4) | ((high & 192) >> 2))


@inline
def _codes_q3_k(block, codes):
    """Two bits in plane order, the third in a mask: a set bit adds 4."""
    for part in range(2):
        for plane in range(4):
            for i in range(32):
                low = (get_u8(block + 32 + 32 * part + i) >> (2 * plane)) & 3
                high = (get_u8(block + i) >> (4 * part + plane)) & 1
                put_u8(codes + 128 * part + 32 * plane + i, low | (high << 2))


@inline
def _codes_q2_k(block, codes):
    for part in range(2):
        for plane in range(4):
            for i in range(32):
                put_u8(codes + 128 * part + 32 * plane + i, (get_u8(block + 16 + 32 * part + i) >> (2 * plane)) & 3)


@inline
def _one_f16(block, place, row):
    put_u16(place + 2 * row, get_u16(block))


@inline
def _one_f16_for_64(block, place, row):
    for part in range(2):
        put_u16(place + 32 * part + 2 * row, get_u16(block))


@inline
def _two_f16(block, place, row):
    put_u16(place + 2 * row, get_u16(block))
    put_u16(place + 32 + 2 * row, get_u16(block + 2))


@inline
def _one_byte(block, place, row):
    put_u8(place + row, get_u8(block))


@inline
def _scales_q4_k(block, place, row):
    """Eight 6-bit scales and eight 6-bit minimums in 12 bytes. Minimums are subtracted, so their sign is flipped."""
    put_u16(place + 2 * row, get_u16(block))
    put_u16(place + 32 + 2 * row, get_u16(block + 2) ^ 0x8000)
    packed = block + 4
    for part in range(4):
        scale, minimum, high = get_u8(packed + part), get_u8(packed + 4 + part), get_u8(packed + 8 + part)
        first, second = place + 64 + 32 * part + row, place + 64 + 32 * (part + 4) + row
        put_u8(first, scale & 63)
        put_u8(first + 16, minimum & 63)
        put_u8(second, (high & 15) | ((scale >> 6) << 4))
        put_u8(second + 16, (high >> 4) | ((minimum >> 6) << 4))


@inline
def _scales_q6_k(block, place, row):
    put_u16(place + 2 * row, get_u16(block + 208))
    for part in range(16):
        put_u8(place + 32 + 16 * part + row, get_u8(block + 192 + part))


@inline
def _scales_q3_k(block, place, row):
    """Sixteen 6-bit scales in 12 bytes: low nibbles first, then four planes of the two high bits; 32 is zero."""
    put_u16(place + 2 * row, get_u16(block + 108))
    packed = block + 96
    for part in range(16):
        low = (get_u8(packed + (part & 7)) >> (4 * (part >> 3))) & 15
        high = (get_u8(packed + 8 + (part & 3)) >> (2 * (part >> 2))) & 3
        put_u8(place + 32 + 16 * part + row, (low | (high << 4)) - 32)


@inline
def _scales_q2_k(block, place, row):
    """Scale and minimum in the nibbles of one byte, kept packed. Minimums are subtracted, so their sign is flipped."""
    put_u16(place + 2 * row, get_u16(block + 80))
    put_u16(place + 32 + 2 * row, get_u16(block + 82) ^ 0x8000)
    for part in range(16):
        put_u8(place + 64 + 16 * part + row, get_u8(block + part))


@inline
def _scales_iq4_xs(block, place, row):
    """Eight 6-bit scales: low nibbles in 4 bytes, high bits in 16; 32 is zero."""
    put_u16(place + 2 * row, get_u16(block))
    high = get_u16(block + 2)
    for part in range(8):
        low = (get_u8(block + 4 + (part >> 1)) >> (4 * (part & 1))) & 15
        put_u8(place + 32 + 16 * part + row, (low | (((high >> (2 * part)) & 3) << 4)) - 32)


UNPACK: dict[str, tuple[Any, Any]] = {
    "q2_0": (_codes_q2_0, _one_f16_for_64),
    "q4_0": (_codes_q4_0, _one_f16),
    "q4_1": (_codes_q4_1, _two_f16),
    "q5_0": (_codes_q5_0, _one_f16),
    "q5_1": (_codes_q5_1, _two_f16),
    "q8_0": (_codes_q8_0, _one_f16),
    "q2_k": (_codes_q2_k, _scales_q2_k),
    "q3_k": (_codes_q3_k, _scales_q3_k),
    "q4_k": (_codes_q4_k, _scales_q4_k),
    "q5_k": (_codes_q5_k, _scales_q4_k),
    "q6_k": (_codes_q6_k, _scales_q6_k),
    "iq4_nl": (_codes_q4_0, _one_f16),
    "iq4_xs": (_codes_iq4_xs, _scales_iq4_xs),
    "mxfp4": (_codes_mxfp4, _one_byte),
}
