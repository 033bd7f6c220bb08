"""Numbers to quantized blocks, for the types that the gguf package only reads.

Each scale comes from the largest number or the range of its group, without llama.cpp's search for a better one: good
enough to test with. Layouts are ggml's (`ggml-common.h`). Functions take float32 ``[n, block size]`` and return uint8
``[n, block bytes]``.
"""

from collections.abc import Callable

import gguf
import numpy as np
from numpy.typing import NDArray

from pumice.gguf import GGMLType, block_size
from pumice.gguf import quantize as package_quantize

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]

IQ4_VALUES = np.array(gguf.quants.IQ4_NL.kvalues, np.float32)


def quantize(values: F32, type: GGMLType) -> U8:
    """``values [rows, columns]`` as rows of blocks."""
    if type.name not in ENCODERS:
        return package_quantize(values, type)
    blocks = values.astype(np.float32).reshape(-1, block_size(type))
    return ENCODERS[type.name](blocks).reshape(len(values), -1)


def q2_k(x: F32) -> U8:
    """16 groups of 16; 4 bits of scale and of minimum each."""
    groups = x.reshape(-1, 16, 16)
    scale, minimum = affine(groups, 3)
    d, scale = shared(scale, 15)
    d_min, minimum = shared(minimum, 15)
    codes = nearest(groups + (d_min * minimum)[..., None], (d * scale)[..., None], 0, 3)
    return join(scale + 16 * minimum, pack_quarters(codes), half(d), half(d_min))


def q3_k(x: F32) -> U8:
    """16 groups of 16; 6 bits of signed scale each, stored with 32 added."""
    groups = x.reshape(-1, 16, 16)
    d, scale = shared(symmetric(groups, 4), 31, signed=True)
    codes = nearest(groups, (d * scale)[..., None], -4, 3) + 4
    high = np.packbits((codes >= 4).reshape(-1, 8, 32), axis=1, bitorder="little")
    return join(high, pack_quarters(codes % 4), pack_q3_k_scales(scale + 32), half(d))


def q4_k(x: F32) -> U8:
    """8 groups of 32; 6 bits of scale and of minimum each."""
    d, d_min, scales, codes = q4_k_or_q5_k(x, 15)
    return join(half(d), half(d_min), scales, pack_nibbles(codes, 32))


def q5_k(x: F32) -> U8:
    """As Q4_K, with the fifth bits apart."""
    d, d_min, scales, codes = q4_k_or_q5_k(x, 31)
    high = np.packbits(codes >= 16, axis=1, bitorder="little")
    return join(half(d), half(d_min), scales, high, pack_nibbles(codes % 16, 32))


def q6_k(x: F32) -> U8:
    """16 groups of 16; 8 bits of signed scale each."""
    groups = x.reshape(-1, 16, 16)
    d, scale = shared(symmetric(groups, 32), 127, signed=True)
    codes = nearest(groups, (d * scale)[..., None], -32, 31) + 32
    return join(pack_nibbles(codes % 16, 64), pack_quarters(codes // 16), scale.astype(np.int8).view(np.uint8), half(d))


def iq4_nl(x: F32) -> U8:
    """32 numbers with one scale; the codes stand for the values of a table."""
    d = rounded(symmetric(x, 127))
    return join(half(d), pack_nibbles(table_codes(x, d[:, None]), 16))


def iq4_xs(x: F32) -> U8:
    """8 groups of 32; 6 bits of signed scale each, stored with 32 added, the highest two apart."""
    groups = x.reshape(-1, 8, 32)
    d, scale = shared(symmetric(groups, 127), 31, signed=True)
    codes = table_codes(groups, (d * scale)[..., None])
    stored = (scale + 32).astype(np.uint16)
    high = (stored >> 4 << 2 * np.arange(8, dtype=np.uint16)).sum(axis=1, dtype=np.uint16)
    return join(half(d), high[:, None].view(np.uint8), pack_nibbles(stored % 16, 1), pack_nibbles(codes, 16))


ENCODERS: dict[str, Callable[[F32], U8]] = {
    "Q2_K": q2_k,
    "Q3_K": q3_k,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
    "IQ4_NL": iq4_nl,
    "IQ4_XS": iq4_xs,
}


# --- scales


def affine(groups: F32, levels: int) -> tuple[F32, F32]:
    """Scale and minimum of each group: numbers are ``scale * code - minimum``, codes 0 ... levels."""
    minimum = -np.minimum(groups.min(axis=-1), 0)
    return (np.maximum(groups.max(axis=-1), 0) + minimum) / levels, minimum


def symmetric(groups: F32, levels: int) -> F32:
    """The scale that makes the number farthest from 0 the code ``-levels``, where there is one code more."""
    farthest = np.take_along_axis(groups, np.abs(groups).argmax(axis=-1)[..., None], axis=-1)[..., 0]
    return farthest / -levels


def shared(scales: F32, levels: int, signed: bool = False) -> tuple[F32, F32]:
    """``scales [n, groups]`` as a float16 for the block, ``[n, 1]``, and whole numbers up to ``levels``."""
    d = rounded(np.abs(scales).max(axis=-1, keepdims=True) / levels)
    return d, nearest(scales, d, -levels if signed else 0, levels)


def nearest(x: F32, scale: F32, low: int, high: int) -> F32:
    """The whole number whose multiple of ``scale`` is nearest to ``x``; 0 where the scale is."""
    return np.clip(np.rint(np.divide(x, scale, out=np.zeros_like(x), where=scale != 0)), low, high)


def table_codes(x: F32, scale: F32) -> NDArray[np.int64]:
    """The code of the nearest value of IQ4's table, times ``scale``."""
    halfway = (IQ4_VALUES[1:] + IQ4_VALUES[:-1]) / 2
    return np.searchsorted(halfway, np.divide(x, scale, out=np.zeros_like(x), where=scale != 0))


def rounded(x: F32) -> F32:
    """As float16 has it."""
    return x.astype(np.float16).astype(np.float32)


def q4_k_or_q5_k(x: F32, levels: int) -> tuple[F32, F32, U8, F32]:
    groups = x.reshape(-1, 8, 32)
    scale, minimum = affine(groups, levels)
    d, scale = shared(scale, 63)
    d_min, minimum = shared(minimum, 63)
    codes = nearest(groups + (d_min * minimum)[..., None], (d * scale)[..., None], 0, levels)
    return d, d_min, pack_q4_k_scales(scale, minimum), codes


# --- bits


def join(*parts: NDArray[np.generic]) -> U8:
    """Blocks from their fields, ``[n, ...]`` each."""
    return np.concatenate([part.astype(np.uint8).reshape(len(part), -1) for part in parts], axis=1)


def half(d: F32) -> U8:
    return d.reshape(-1, 1).astype("<f2").view(np.uint8)


def pack_nibbles(codes: NDArray[np.generic], n: int) -> U8:
    """``n`` codes in the low halves of ``n`` bytes, the next ``n`` in the high halves."""
    low_high = codes.astype(np.uint8).reshape(len(codes), -1, 2, n)
    return low_high[:, :, 0] + 16 * low_high[:, :, 1]


def pack_quarters(codes: NDArray[np.generic]) -> U8:
    """Each 128 codes in 32 bytes, lowest two bits first."""
    quarters = codes.astype(np.uint8).reshape(len(codes), 2, 4, 32)
    return (quarters << np.array([0, 2, 4, 6], np.uint8)[:, None]).sum(axis=2, dtype=np.uint8)


def pack_q3_k_scales(scales: F32) -> U8:
    """16 numbers of 6 bits: the low four of two in a byte, then the high two of four."""
    codes = scales.astype(np.uint8)
    high = (codes >> 4).reshape(-1, 4, 4) << np.array([0, 2, 4, 6], np.uint8)[:, None]
    return join(pack_nibbles(codes % 16, 8), high.sum(axis=1, dtype=np.uint8))


def pack_q4_k_scales(scales: F32, minima: F32) -> U8:
    """8 scales and 8 minima of 6 bits: the first four of each in a byte, whose high bits are those of the last four."""
    s, m = scales.astype(np.uint8), minima.astype(np.uint8)
    return join(s[:, :4] + (s[:, 4:] >> 4 << 6), m[:, :4] + (m[:, 4:] >> 4 << 6), s[:, 4:] % 16 + 16 * (m[:, 4:] % 16))
