"""Lookup tables for unpacking the rarer types (kernels/unpack_rare.py), from tables of the `gguf` package."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import GGMLType

Table = NDArray[np.uint8]


@functools.cache
def unpack_table(type: GGMLType) -> Table:
    """Return the bytes of a type's ``table`` argument; a single byte if it needs none."""
    make = _TABLES.get(type.name)
    return np.zeros(1, np.uint8) if make is None else make(type.name)


def _byte_masks(signs: Table) -> Table:
    """Return eight bytes for each byte of signs: all ones for a set bit, least significant first."""
    return np.unpackbits(signs[:, None], axis=1, bitorder="little") * np.uint8(255)


def _grid(name: str) -> NDArray[Any]:
    import gguf.quants

    quantization = getattr(gguf.quants, name)
    quantization.init_grid()
    return np.asarray(quantization.grid).reshape(quantization.grid_shape)


def _all_signs() -> Table:
    return _byte_masks(np.arange(256, dtype=np.uint8))


def _even_signs() -> Table:
    """Return the 128 ways to negate an even number of eight values."""
    import gguf.quants

    masks = np.zeros((256, 8), np.uint8)
    masks[:128] = _byte_masks(np.frombuffer(gguf.quants.IQ2_XXS.ksigns, np.uint8))
    return masks


def _with_signs(signs: Callable[[], Table]) -> Callable[[str], Table]:
    return lambda name: np.concatenate([signs().reshape(-1), _grid(name).astype(np.uint8).reshape(-1)])


def _shifted_grids(name: str) -> Table:
    """Return eight times the values, plus one and then minus one."""
    grid = 8 * _grid(name)
    return np.stack([grid + 1, grid - 1]).astype(np.int8).view(np.uint8).reshape(-1)


def _nvfp4(name: str) -> Table:
    """Return the values of the low and high nibble for each byte, then each scale as float32."""
    import gguf.quants

    values = np.array(gguf.quants.NVFP4.kvalues, np.int8).view(np.uint8)
    byte = np.arange(256)
    pairs = np.stack([values[byte & 15], values[byte >> 4]], axis=1)
    scales = gguf.quants.NVFP4.ue4m3_to_fp32(byte.astype(np.uint8)).astype(np.float32)
    return np.concatenate([pairs.reshape(-1), scales.view(np.uint8)])


_TABLES: dict[str, Callable[[str], Table]] = {
    "Q1_0": lambda name: _all_signs().reshape(-1),
    "NVFP4": _nvfp4,
    "IQ1_S": _shifted_grids,
    "IQ1_M": _shifted_grids,
    "IQ2_XXS": _with_signs(_even_signs),
    "IQ2_XS": _with_signs(_even_signs),
    "IQ2_S": _with_signs(_all_signs),
    "IQ3_XXS": _with_signs(_even_signs),
    "IQ3_S": _with_signs(_all_signs),
}
