"""Quantized blocks to numbers and back.

The `gguf` package knows nearly every format; only what it lacks is written here. Block layouts are ggml's
(`ggml-common.h`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pumice.errors import GGUFError

if TYPE_CHECKING:
    from pumice.gguf.types import GGMLType

Blocks = NDArray[np.uint8]
Numbers = NDArray[np.float32]

# Numbers decoded at a time: the temporaries are a few times as large, and small beside a tensor.
CHUNK = 1 << 17


def dequantize(data: Blocks, type: "GGMLType") -> Numbers:
    """The numbers that quantized rows stand for.

    data: uint8 of shape (..., bytes of a row). Returns float32 of shape (..., columns): for F32 a view of
    `data` where it is aligned, else a new array. Integers and F64 are rounded to float32. ValueError if the
    rows are not whole blocks, GGUFError for a type that neither `gguf` nor this module decodes.
    """
    from pumice.gguf.types import block_size, type_size

    if data.ndim == 0 or data.shape[-1] % type_size(type):
        raise ValueError(f"rows of shape {data.shape} are not whole {type.name} blocks of {type_size(type)} bytes")
    shape = (*data.shape[:-1], data.shape[-1] // type_size(type) * block_size(type))
    blocks = np.ascontiguousarray(data).reshape(-1, type_size(type))
    if type.name == "F32" and blocks.view("<f4").flags.aligned:
        return blocks.view("<f4").reshape(shape)

    out = np.empty((len(blocks), block_size(type)), np.float32)
    step = max(1, CHUNK // block_size(type))
    decode = _decoder(type)
    # Random bytes can be infinities and NaNs as scales: they go through as such, without warnings.
    with np.errstate(all="ignore"):
        for start in range(0, len(blocks), step):
            out[start : start + step] = decode(blocks[start : start + step])
    return out.reshape(shape)


def quantize(values: Numbers, type: "GGMLType") -> Blocks:
    """Numbers to quantized rows, as `gguf.quants` rounds them.

    values: float32 of shape (..., columns). Returns uint8 of shape (..., bytes of a row). ValueError if a row
    is not whole blocks or the type cannot be written.
    """
    from gguf.quants import quantize as package_quantize

    from pumice.gguf.types import row_bytes

    row_bytes(type, values.shape[-1])
    try:
        packed = package_quantize(np.ascontiguousarray(values, np.float32), type)
    except NotImplementedError:
        raise ValueError(f"numbers cannot be quantized to {type.name} here") from None
    return np.ascontiguousarray(packed).view(np.uint8)


def _decoder(type: "GGMLType") -> Callable[[Blocks], NDArray[Any]]:
    """A function from uint8 (n, block bytes) to numbers (n, block size)."""
    if type.name in _PLAIN:
        return lambda blocks: blocks.view(_PLAIN[type.name])
    if type.name in _OWN:
        return _OWN[type.name]

    from gguf.quants import dequantize as package_dequantize

    from pumice.gguf.types import block_size

    def decode(blocks: Blocks) -> NDArray[Any]:
        try:
            # One long row: the package works through many rows in small groups, which is slow for short ones.
            return package_dequantize(blocks.reshape(1, -1), type).reshape(-1, block_size(type))
        except NotImplementedError:
            raise GGUFError(f"tensor type {type.name} cannot be turned into numbers here") from None

    return decode


_PLAIN = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}


def _q8_1(blocks: Blocks) -> Numbers:
    """Scale float16, sum of the block float16 (not needed here), 32 int8."""
    scale = blocks[:, :2].view("<f2").astype(np.float32)
    return scale * blocks[:, 4:].view(np.int8)


def _q8_k(blocks: Blocks) -> Numbers:
    """Scale float32, 256 int8, 16 sums int16 (not needed here)."""
    return blocks[:, :4].view("<f4") * blocks[:, 4 : 4 + 256].view(np.int8)


def _q1_0(blocks: Blocks) -> Numbers:
    """Scale float16, 128 signs, least significant bit first: a set bit is +scale, a clear one -scale."""
    scale = blocks[:, :2].view("<f2").astype(np.float32)
    return np.where(np.unpackbits(blocks[:, 2:], axis=1, bitorder="little"), scale, -scale)


_OWN: dict[str, Callable[[Blocks], Numbers]] = {"Q8_1": _q8_1, "Q8_K": _q8_k, "Q1_0": _q1_0}
