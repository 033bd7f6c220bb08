"""Uploads of matrices: the file's blocks are copied unchanged, and a shader rearranges them to planes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Weight, fixed
from pumice_vulkan.formats import BLOCK_COLUMNS, FORMATS, Format

UNIT = 256  # columns: whole blocks of every type; eight blocks of 32 are whole words of every type


@dataclass(frozen=True)
class Packing:
    """A matrix, or a stack of one shape, for a repacking kernel.

    Attributes:
        n_blocks: blocks of 32 columns.
        row_blocks: blocks of 32 columns per row.
        data: uint8 from the file.
        nbytes: bytes on the device.
    """

    format: Format
    n_blocks: int
    row_blocks: int
    data: NDArray[np.uint8]
    nbytes: int

    @property
    def kernel(self) -> str:
        return f"repack.{self.format.name}"

    def pieces(self, limit: int) -> Iterator[Piece]:
        """Yield the matrix in pieces of at most ``limit`` bytes of the file."""
        data = self.data.reshape(-1)
        unit_bytes = len(data) * 8 // self.n_blocks  # bytes of eight blocks of 32 columns
        step = limit // unit_bytes * 8
        for first in range(0, self.n_blocks, step):
            n_blocks = min(step, self.n_blocks - first)
            start = first // 8 * unit_bytes
            yield Piece(data[start : start + n_blocks * unit_bytes // 8], first, n_blocks)


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


def pack(weight: Weight, format: Format) -> Packing | NDArray[np.generic]:
    """Return a matrix, or stacked matrices of experts, in the form for upload."""
    *rows, n_columns = fixed(weight.shape)
    n_rows = int(np.prod(rows))
    if format.in_lanes or not format.dense:
        row_blocks = -(-n_columns // BLOCK_COLUMNS)
        return Packing(format, n_rows * row_blocks, row_blocks, weight.data, format.matrix_bytes(n_rows, n_columns))
    data: NDArray[np.uint8] = weight.data.reshape(n_rows, -1)
    missing = format.row_blocks(n_columns) * 16 - data.shape[1]
    return np.pad(data, ((0, 0), (0, missing))) if missing else data
