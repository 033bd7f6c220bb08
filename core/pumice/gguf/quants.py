"""Dequantize blocks, and quantize values.

The package `gguf` implements nearly every format; this module adds the missing ones. Block layouts are ggml's
(`ggml-common.h`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.errors import GGUFError
from pumice.gguf.types import GGMLType, block_size, row_bytes, type_size

Blocks = NDArray[np.uint8]
Numbers = NDArray[np.float32]

# Values decoded at a time: temporaries are a few times as large, but small compared to a tensor.
CHUNK = 1 << 17


def dequantize(data: Blocks, type: GGMLType) -> Numbers:
    """Dequantize rows. Integers and F64 are rounded to float32.

    Args:
        data: uint8 of shape (..., bytes per row).
        type: type of the blocks.

    Returns:
        float32 of shape (..., columns); for F32 a view of `data` if it is aligned, otherwise a new array.

    Raises:
        ValueError: the rows are not whole blocks.
        GGUFError: neither `gguf` nor this module can decode the type.
    """
    if data.ndim == 0 or data.shape[-1] % type_size(type):
        raise ValueError(f"rows of shape {data.shape} are not whole {type.name} blocks of {type_size(type)} bytes")
    shape = (*data.shape[:-1], data.shape[-1] // type_size(type) * block_size(type))
    blocks = np.ascontiguousarray(data).reshape(-1, type_size(type))
    if type.name == "F32" and blocks.view("<f4").flags.aligned:
        return blocks.view("<f4").reshape(shape)

    out = np.empty((len(blocks), block_size(type)), np.float32)
    step = max(1, CHUNK // block_size(type))
    decode = _decoder(type)
    # Scales of arbitrary bytes can be infinite or NaN: they are kept as such, without warnings.
    with np.errstate(all="ignore"):
        for start in range(0, len(blocks), step):
            out[start : start + step] = decode(blocks[start : start + step])
    return out.reshape(shape)


def quantize(values: Numbers, type: GGMLType) -> Blocks:
    """Quantize rows, rounded like `gguf.quants`.

    Args:
        values: float32 of shape (..., columns).
        type: type of the blocks.

    Returns:
        uint8 of shape (..., bytes per row).

    Raises:
        ValueError: a row is not a whole number of blocks, or the type cannot be written.
    """
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize as package_quantize

    n_bytes = row_bytes(type, values.shape[-1])
    values = np.ascontiguousarray(values, np.float32)
    if type in _ENCODERS:
        blocks = _ENCODERS[type](values.reshape(-1, block_size(type)))
        return blocks.reshape(*values.shape[:-1], n_bytes)
    try:
        packed = package_quantize(values, GGMLQuantizationType(type))
    except NotImplementedError:
        raise ValueError(f"quantizing to {type.name} is not supported") from None
    return np.ascontiguousarray(packed).view(np.uint8)


def _decoder(type: GGMLType) -> Callable[[Blocks], NDArray[Any]]:
    """Return a function that decodes uint8 (n, block bytes) to values (n, block size)."""
    if type.name in _PLAIN:
        return lambda blocks: blocks.view(_PLAIN[type.name])
    if type in _DECODERS:
        return _DECODERS[type]

    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize as package_dequantize

    def decode(blocks: Blocks) -> NDArray[Any]:
        try:
            # As one long row, since the package processes rows in small groups, which is slow for short rows.
            return package_dequantize(blocks.reshape(1, -1), GGMLQuantizationType(type)).reshape(-1, block_size(type))
        except NotImplementedError:
            raise GGUFError(f"decoding tensor type {type.name} is not supported") from None

    return decode


_PLAIN = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}


def _q8_1(blocks: Blocks) -> Numbers:
    """Decode a float16 scale, the float16 sum of the block (unused), 32 int8."""
    scale = blocks[:, :2].view("<f2").astype(np.float32)
    return scale * blocks[:, 4:].view(np.int8)


def _q8_k(blocks: Blocks) -> Numbers:
    """Decode a float32 scale, 256 int8, 16 int16 sums (unused)."""
    return blocks[:, :4].view("<f4") * blocks[:, 4 : 4 + 256].view(np.int8)


def _q1_0(blocks: Blocks) -> Numbers:
    """Decode a float16 scale and 128 signs, lowest bit first: a set bit is +scale, a clear one -scale."""
    scale = blocks[:, :2].view("<f2").astype(np.float32)
    return np.where(np.unpackbits(blocks[:, 2:], axis=1, bitorder="little"), scale, -scale)


def _q2_0(blocks: Blocks) -> Numbers:
    """Decode a float16 scale and 64 2-bit codes, lowest first: -1, 0, 1 or 2 scales."""
    scale = blocks[:, :2].view("<f2").astype(np.float32)
    codes = blocks[:, 2:, None] >> _TWO_BITS & 3
    return (codes.reshape(len(blocks), -1).astype(np.float32) - 1) * scale


def _to_q2_0(values: Numbers) -> Blocks:
    """Quantize by the largest magnitude; halves are rounded away from zero (`quantize_row_q2_0_ref`)."""
    scale = np.abs(values).max(axis=1, keepdims=True)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    scaled = values * inverse
    whole = np.trunc(scaled)
    codes = np.clip(whole + np.trunc(2 * (scaled - whole)) + 1, 0, 3).astype(np.uint8)
    packed = np.bitwise_or.reduce(codes.reshape(len(values), -1, 4) << _TWO_BITS, axis=2)
    return np.concatenate([scale.astype("<f2").view(np.uint8), packed], axis=1)


_TWO_BITS = np.array([0, 2, 4, 6], np.uint8)  # bit offsets of the four codes in a byte

_DECODERS: dict[GGMLType, Callable[[Blocks], Numbers]] = {
    GGMLType.Q8_1: _q8_1,
    GGMLType.Q8_K: _q8_k,
    GGMLType.Q1_0: _q1_0,
    GGMLType.Q2_0: _q2_0,
}
_ENCODERS: dict[GGMLType, Callable[[Numbers], Blocks]] = {GGMLType.Q2_0: _to_q2_0}
