"""Unpacking of GGUF's quantized blocks to the codes and scales of ``pumice.plugin.Coding``, on the device.

Block layouts are ggml's (`ggml-common.h`). Each function takes uint8 ``[n, bytes of a block]``. Types without a coding
(IQ1, IQ2, IQ3, TQ, NVFP4, Q1_0) are decoded by the core; each 16 columns become multiples of a common scale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from pumice.plugin import GGMLType, dequantize
from pumice.plugin.unstable import CODINGS, Coding


class Blocks(NamedTuple):
    """Unpacked blocks: a number is ``scale * (code - offset) + minimum``.

    Attributes:
        codes: uint8 ``[n, columns]``; signed 8-bit codes have 128 added.
        scales: float32 ``[n, columns / scale_columns]``.
        minimums: like ``scales``, or None.
    """

    codes: mx.array
    scales: mx.array
    minimums: mx.array | None = None


def unpack(blocks: mx.array, type: GGMLType) -> Blocks:
    """Unpack blocks ``[n, bytes]``."""
    if type not in _LAYOUTS:
        return _multiples(mx.array(dequantize(np.array(blocks), type)))
    codes, scales = _LAYOUTS[type]
    scale, *minimum = scales(blocks)
    return Blocks(codes(blocks).reshape(len(blocks), -1), scale, *minimum)


def _multiples(numbers: mx.array) -> Blocks:
    """Return numbers ``[n, k]`` as int8 multiples of the largest scale that divides each 16 of them.

    The number with the largest magnitude becomes a negative multiple, since int8 includes -128.
    """
    groups = numbers.reshape(len(numbers), -1, 16)
    largest = -mx.take_along_axis(groups, mx.argmax(mx.abs(groups), axis=-1, keepdims=True), axis=-1)
    relative = mx.where(largest == 0, 0, groups / largest)
    divisor = mx.zeros_like(largest)
    for candidate in range(1, LARGEST_MULTIPLE + 1):
        multiples = relative * candidate
        fits = mx.all(mx.abs(multiples - mx.round(multiples)) < WHOLE, axis=-1, keepdims=True)
        divisor = mx.where((divisor == 0) & fits, candidate, divisor)
        if mx.all(divisor > 0):
            break
    divisor = mx.where(divisor == 0, LARGEST_MULTIPLE, divisor)
    codes = (mx.round(relative * divisor) + 128).astype(mx.uint8)
    return Blocks(codes.reshape(numbers.shape), (largest / divisor)[..., 0])


LARGEST_MULTIPLE = 128
WHOLE = 1e-3  # tolerance of multiples; non-multiples differ by at least 1 / LARGEST_MULTIPLE

#: Bit offsets of a byte's 2-bit and 1-bit codes. Evaluated constants belong to no thread, unlike lazy arrays.
TWO_BITS = mx.array([0, 2, 4, 6], mx.uint8)
ONE_BIT = mx.array(list(range(8)), mx.uint8)
Codes = Callable[[mx.array], mx.array]
ReadScales = Callable[[mx.array], tuple[mx.array, ...]]


def _f16(blocks: mx.array, start: int) -> mx.array:
    """Return the float16 at a byte of each block as float32 ``[n, 1]``."""
    return mx.contiguous(blocks[:, start : start + 2]).view(mx.float16).astype(mx.float32)


def _halves(data: mx.array) -> mx.array:
    """Return low nibbles ``[..., n]``, then high nibbles: ``[..., 2, n]``."""
    return mx.stack([data & 15, data >> 4], axis=-2)


def _planes(data: mx.array, shifts: mx.array, mask: int) -> mx.array:
    """Return a plane of bits for each shift: ``[..., shifts, n]``."""
    return (data[..., None, :] >> shifts[:, None]) & mask


def _fifth_bits(data: mx.array) -> mx.array:
    """Return 32 bits of 4 bytes, lowest first, as 16 and 16, shifted to the fifth bit."""
    bits = (data[..., None] >> ONE_BIT) & 1
    return bits.reshape(len(data), 2, 16) << 4


def _nibbles(start: int) -> Codes:
    return lambda blocks: _halves(blocks[:, start : start + 16])


def _nibbles_and_bits(start: int) -> Codes:
    """Return a reader of codes whose fifth bits are in the 4 bytes before ``start``."""
    return lambda blocks: _nibbles(start)(blocks) | _fifth_bits(blocks[:, start - 4 : start])


def _codes_q8_0(blocks: mx.array) -> mx.array:
    return blocks[:, 2:] ^ 128


def _codes_q2_0(blocks: mx.array) -> mx.array:
    return (blocks[:, 2:, None] >> TWO_BITS) & 3


def _codes_q2_k(blocks: mx.array) -> mx.array:
    return _planes(blocks[:, 16:80].reshape(-1, 2, 32), TWO_BITS, 3)


def _codes_q3_k(blocks: mx.array) -> mx.array:
    low = _planes(blocks[:, 32:96].reshape(-1, 2, 32), TWO_BITS, 3)
    return low.reshape(-1, 8, 32) | (_planes(blocks[:, :32], ONE_BIT, 1) << 2)


def _codes_q4_k(blocks: mx.array) -> mx.array:
    return _halves(blocks[:, 16:144].reshape(-1, 4, 32))


def _codes_q5_k(blocks: mx.array) -> mx.array:
    low = _halves(blocks[:, 48:176].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return low | (_planes(blocks[:, 16:48], ONE_BIT, 1) << 4)


def _codes_q6_k(blocks: mx.array) -> mx.array:
    low = _halves(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    return low | (_planes(blocks[:, 128:192].reshape(-1, 2, 32), TWO_BITS, 3) << 4)


def _codes_iq4_xs(blocks: mx.array) -> mx.array:
    return _halves(blocks[:, 8:136].reshape(-1, 8, 16))


def _one_f16(blocks: mx.array) -> tuple[mx.array, ...]:
    return (_f16(blocks, 0),)


def _one_f16_for_64(blocks: mx.array) -> tuple[mx.array, ...]:
    return (mx.repeat(_f16(blocks, 0), 2, axis=1),)


def _two_f16(blocks: mx.array) -> tuple[mx.array, ...]:
    return _f16(blocks, 0), _f16(blocks, 2)


def _scales_q2_k(blocks: mx.array) -> tuple[mx.array, ...]:
    return _f16(blocks, 80) * (blocks[:, :16] & 15), -_f16(blocks, 82) * (blocks[:, :16] >> 4)


def _scales_q3_k(blocks: mx.array) -> tuple[mx.array, ...]:
    """Sixteen 6-bit scales in 12 bytes: low nibbles first, then four planes of the two high bits; 32 is zero."""
    low = _halves(blocks[:, 96:104]).reshape(-1, 16)
    high = _planes(blocks[:, 104:108], TWO_BITS, 3).reshape(-1, 16)
    return (_f16(blocks, 108) * ((low | (high << 4)).astype(mx.float32) - 32),)


def _scales_q4_k(blocks: mx.array) -> tuple[mx.array, ...]:
    """Eight 6-bit scales and eight 6-bit minimums in 12 bytes. Minimums are subtracted, so their sign is flipped."""
    scale, minimum, high = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = mx.concatenate([scale & 63, (high & 15) | ((scale >> 6) << 4)], axis=1)
    minimums = mx.concatenate([minimum & 63, (high >> 4) | ((minimum >> 6) << 4)], axis=1)
    return _f16(blocks, 0) * scales, -_f16(blocks, 2) * minimums


def _scales_q6_k(blocks: mx.array) -> tuple[mx.array, ...]:
    return (_f16(blocks, 208) * mx.contiguous(blocks[:, 192:208]).view(mx.int8),)


def _scales_iq4_xs(blocks: mx.array) -> tuple[mx.array, ...]:
    """Eight 6-bit scales: low nibbles in 4 bytes, high bits in 2; 32 is zero."""
    low = mx.stack([blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4], axis=-1).reshape(-1, 8)
    high = ((blocks[:, 2:4, None] >> TWO_BITS) & 3).reshape(-1, 8)
    return (_f16(blocks, 0) * ((low | (high << 4)).astype(mx.float32) - 32),)


def _one_exponent(blocks: mx.array) -> tuple[mx.array, ...]:
    """A power of two, halved since the table has doubled FP4 values; assembled from a float32's bits."""
    exponent = blocks[:, :1].astype(mx.uint32)
    bits = mx.where(exponent < 2, mx.array(0x00200000, mx.uint32) << exponent, (exponent - 1) << 23)
    return (bits.view(mx.float32),)


_LAYOUTS: dict[GGMLType, tuple[Codes, ReadScales]] = {
    GGMLType.Q2_0: (_codes_q2_0, _one_f16_for_64),
    GGMLType.Q4_0: (_nibbles(2), _one_f16),
    GGMLType.Q4_1: (_nibbles(4), _two_f16),
    GGMLType.Q5_0: (_nibbles_and_bits(6), _one_f16),
    GGMLType.Q5_1: (_nibbles_and_bits(8), _two_f16),
    GGMLType.Q8_0: (_codes_q8_0, _one_f16),
    GGMLType.Q2_K: (_codes_q2_k, _scales_q2_k),
    GGMLType.Q3_K: (_codes_q3_k, _scales_q3_k),
    GGMLType.Q4_K: (_codes_q4_k, _scales_q4_k),
    GGMLType.Q5_K: (_codes_q5_k, _scales_q4_k),
    GGMLType.Q6_K: (_codes_q6_k, _scales_q6_k),
    GGMLType.IQ4_NL: (_nibbles(2), _one_f16),
    GGMLType.IQ4_XS: (_codes_iq4_xs, _scales_iq4_xs),
    GGMLType.MXFP4: (_nibbles(1), _one_exponent),
}

#: Coding of types that have none: the int8 codes of ``_multiples``.
MULTIPLES = Coding(8, "k16")


def coding_of(type: GGMLType) -> Coding:
    """Return the coding of the codes that ``unpack`` returns."""
    return CODINGS[type] if type in _LAYOUTS else MULTIPLES
