"""Uploads of matrices: the file's blocks are copied unchanged, and a shader rearranges them to planes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Weight, fixed
from pumice_vulkan.formats import FORMATS, Format

UNIT = 256  # columns: whole blocks of every type; eight blocks of 32 are whole words of every type


@dataclass(frozen=True)
class Packing:
    """A quantized matrix, or a stack of one shape, for a repacking kernel.

    Attributes:
        n_blocks: blocks of 32 columns on the device.
        data: uint8 from the file.
        nbytes: bytes on the device.
        first: index of the first block in ``data``.
        n_in_data: number of blocks in ``data``.
    """

    format: Format
    n_blocks: int
    data: NDArray[np.uint8]
    nbytes: int
    first: int
    n_in_data: int

    @property
    def kernel(self) -> str:
        return f"repack.{self.format.name}"

    def pieces(self, limit: int) -> Iterator[Piece]:
        """Yield the matrix in pieces of at most ``limit`` bytes of the file."""
        data = self.data.reshape(-1)
        unit_bytes = len(data) * 8 // self.n_in_data  # bytes of eight blocks of 32 columns
        step = limit // unit_bytes * 8
        for first in range(0, self.n_in_data, step):
            n_blocks = min(step, self.n_in_data - first)
            start = first // 8 * unit_bytes
            yield Piece(data[start : start + n_blocks * unit_bytes // 8], self.first + first, n_blocks)


@dataclass(frozen=True)
class Piece:
    """Bytes of the file, and the index and count of their blocks of 32 columns."""

    data: NDArray[np.uint8]
    first: int
    n_blocks: int

    @property
    def n_workgroups(self) -> int:
        """Workgroups of shaders/repack.comp, whose 64 invocations process two blocks each."""
        return -(-self.n_blocks // 128)


def packed_bytes(weight: Weight) -> int:
    """Return the bytes of a weight on the device: in planes, or as float32 if it is no matrix or has another type."""
    *rows, n_columns = fixed(weight.shape)
    format = FORMATS.get(weight.type) if rows else None
    return format.matrix_bytes(math.prod(rows), n_columns) if format else 4 * math.prod([*rows, n_columns])


def pack(weight: Weight) -> Packing | NDArray[np.generic]:
    """Return a matrix, or stacked matrices of experts, in the form for upload."""
    format = FORMATS[weight.type]
    *rows, n_columns = fixed(weight.shape)
    n_rows = int(np.prod(rows))
    if not format.dense:
        n_blocks = n_rows * format.row_blocks(n_columns)
        return Packing(format, n_blocks, weight.data, format.matrix_bytes(n_rows, n_columns), 0, n_blocks)
    data: NDArray[np.uint8] = weight.data.reshape(n_rows, -1)
    missing = format.row_blocks(n_columns) * 16 - data.shape[1]
    return np.pad(data, ((0, 0), (0, missing))) if missing else data


def pack_some(stack: Weight, matrices: Weight, index: int) -> Packing | NDArray[np.generic]:
    """Return matrices in the form for upload to their places in a stack, from ``index`` on."""
    own = pack(matrices)
    if not isinstance(own, Packing):
        return own
    n_of_each = own.n_blocks // int(matrices.shape[0])
    n_blocks, n_bytes = n_of_each * int(stack.shape[0]), packed_bytes(stack)
    return Packing(own.format, n_blocks, own.data, n_bytes, n_of_each * index, own.n_blocks)
