"""Weights packed into tiles for the kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import GGMLType, Weight, concrete
from pumice_cpu.formats import COLUMNS, FORMATS, ROWS, Format
from pumice_cpu.memory import WeightMemory
from pumice_cpu.runtime import OperationTable, ThreadPool, aligned_zeros

UNIT = 256  # as in kernels/pack.py


@dataclass(frozen=True)
class Packed:
    """A quantized matrix in tiles, or several of one shape in a row: those of experts."""

    format: Format
    n_rows: int
    n_columns: int
    codes: NDArray[np.uint8]
    scales: NDArray[np.uint8]
    table: NDArray[np.uint8]

    @classmethod
    def allocate(cls, memory: WeightMemory, weight: Weight) -> Packed:
        """Memory for a matrix ``[rows, columns]``, or for ``[experts, rows, columns]``, one matrix below the other."""
        format = FORMATS[weight.type]
        n_matrices, n_rows, n_columns = _sizes(weight)
        n_tiles = n_matrices * -(-n_rows // ROWS)
        codes = memory.zeros(n_tiles * (n_columns // COLUMNS) * format.code_bytes)
        scales = memory.zeros(n_tiles * (n_columns // format.scale_columns) * format.scale_bytes)
        values = np.array(format.table or [0] * 16, np.int8).view(np.uint8)
        return cls(format, n_rows, n_columns, codes, scales, np.tile(values, 4))

    @property
    def n_blocks(self) -> int:
        """Blocks of 32 columns in a tile."""
        return self.n_columns // COLUMNS

    @property
    def scale_stride(self) -> int:
        """Bytes of a tile's scales."""
        return self.n_columns // self.format.scale_columns * self.format.scale_bytes

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes


def can_pack(type: GGMLType, n_columns: int) -> bool:
    return type in FORMATS and n_columns % FORMATS[type].scale_columns == 0


def pack_kernel(weight: Weight) -> str:
    return f"pack.pack:{FORMATS[weight.type].name}"


def pack(pool: ThreadPool, weight: Weight, packed: Packed) -> None:
    """Write a matrix's tiles, and give back the file's pages."""
    n_matrices, n_rows, _ = _sizes(weight)
    codes, scales, n_units = packed.codes, packed.scales, packed.n_columns // packed.format.scale_columns
    data = weight.data.reshape(n_matrices, n_rows, -1)
    scratch = aligned_zeros(pool.n_threads * ROWS * UNIT)
    table = OperationTable()
    for i in range(n_matrices):
        arguments = {
            "source": data[i].ctypes.data,
            "row_bytes": data.shape[2],
            "block_bytes": data.shape[2] // n_units,
            "codes": codes[i * len(codes) // n_matrices :].ctypes.data,
            "scales": scales[i * len(scales) // n_matrices :].ctypes.data,
            "scratch": scratch.ctypes.data,
            "n_rows": n_rows,
            "n_units": n_units,
        }
        table.add(pack_kernel(weight), arguments, alongside=True)
    pool.run(table)
    weight.source.release()


def _sizes(weight: Weight) -> tuple[int, int, int]:
    *experts, n_rows, n_columns = concrete(weight.shape, 0, 0)
    return int(np.prod(experts)) if experts else 1, n_rows, n_columns
