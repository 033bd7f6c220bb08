"""Weights packed into tiles for the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import GGMLType, Weight, fixed
from pumice_cpu.formats import BY_NAME, COLUMNS, FORMATS, ROWS, Format
from pumice_cpu.memory import WeightMemory
from pumice_cpu.runtime import OperationTable, ThreadPool, aligned_zeros

UNIT = 256  # as in kernels/pack.py
PIECE = 16 * 2**20  # bytes of a matrix to pack at a time


@dataclass(frozen=True)
class Packed:
    """A quantized matrix in tiles, or a stack of matrices of one shape, as for experts."""

    format: Format
    n_rows: int
    n_columns: int
    codes: NDArray[np.uint8]
    scales: NDArray[np.uint8]
    table: NDArray[np.uint8]

    @classmethod
    def allocate(cls, memory: WeightMemory, weight: Weight) -> Packed:
        """Allocate memory for a matrix ``[rows, columns]``, or for a stack ``[experts, rows, columns]``."""
        format = FORMATS[weight.type]
        n_matrices, n_rows, n_columns = _sizes(weight)
        n_tiles = n_matrices * -(-n_rows // ROWS)
        codes = memory.zeros(n_tiles * (n_columns // COLUMNS) * format.code_bytes)
        scales = memory.zeros(n_tiles * (n_columns // format.block_columns) * format.scale_bytes)
        return cls(format, n_rows, n_columns, codes, scales, format.lookup_table)

    @property
    def n_blocks(self) -> int:
        """Blocks of 32 columns per tile."""
        return self.n_columns // COLUMNS

    @property
    def scale_stride(self) -> int:
        """Bytes of a tile's scales."""
        return self.n_columns // self.format.block_columns * self.format.scale_bytes

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes


def can_pack(type: GGMLType, n_columns: int) -> bool:
    return type in FORMATS and n_columns % FORMATS[type].block_columns == 0


def pack_kernel(weight: Weight) -> str:
    return f"pack.pack:{FORMATS[weight.type].name}"


def kernels() -> list[str]:
    return [f"pack.pack:{name}" for name in BY_NAME]


def pack(pool: ThreadPool, weight: Weight, packed: Packed) -> None:
    """Write a matrix's tiles piece by piece, releasing the file's pages, so that memory is not needed twice."""
    n_matrices, n_rows, _ = _sizes(weight)
    n_tiles, n_units = -(-n_rows // ROWS), packed.n_columns // packed.format.block_columns
    data = weight.data.reshape(n_matrices, n_rows, -1)
    codes, scales = packed.codes.reshape(n_matrices, n_tiles, -1), packed.scales.reshape(n_matrices, n_tiles, -1)
    row_bytes = data.shape[2]
    scratch = aligned_zeros(pool.n_threads * ROWS * UNIT)
    table, first, end = OperationTable(), 0, 0
    for matrix, tile in _pieces(n_matrices, n_tiles, ROWS * row_bytes):
        rows = data[matrix, ROWS * tile.start : ROWS * tile.stop]
        arguments = {
            "source": rows.ctypes.data,
            "row_bytes": row_bytes,
            "block_bytes": row_bytes // n_units,
            "codes": codes[matrix, tile.start :].ctypes.data,
            "scales": scales[matrix, tile.start :].ctypes.data,
            "scratch": scratch.ctypes.data,
            "n_rows": len(rows),
            "n_units": n_units,
        }
        table.add(pack_kernel(weight), arguments, alongside=True)
        end += rows.nbytes
        if end - first >= PIECE or end == data.nbytes:
            pool.run(table)
            weight.source.release(first, end)
            table, first = OperationTable(), end
    weight.source.release()


def _pieces(n_matrices: int, n_tiles: int, tile_bytes: int) -> Iterator[tuple[int, range]]:
    """Yield a matrix and a range of its tiles, of about ``PIECE`` bytes each, until all are covered."""
    step = max(1, PIECE // tile_bytes)
    for matrix in range(n_matrices):
        for tile in range(0, n_tiles, step):
            yield matrix, range(tile, min(tile + step, n_tiles))


def _sizes(weight: Weight) -> tuple[int, int, int]:
    *experts, n_rows, n_columns = fixed(weight.shape)
    return int(np.prod(experts)) if experts else 1, n_rows, n_columns
