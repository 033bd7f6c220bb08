"""Products with matrices of the rarer types, which stay as they are in the file."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.plugin import GGMLType, Weight
from pumice_cpu.formats import COLUMNS, UNPACKED
from pumice_cpu.lower.rule import Lowering
from pumice_cpu.lower.tables import unpack_table

#: Columns of a block.
TYPES = {
    GGMLType.Q8_1: 32,
    GGMLType.Q8_K: 256,
    GGMLType.Q1_0: 128,
    GGMLType.NVFP4: 64,
    GGMLType.TQ1_0: 256,
    GGMLType.TQ2_0: 256,
    GGMLType.IQ1_S: 256,
    GGMLType.IQ1_M: 256,
    GGMLType.IQ2_XXS: 256,
    GGMLType.IQ2_XS: 256,
    GGMLType.IQ2_S: 256,
    GGMLType.IQ3_XXS: 256,
    GGMLType.IQ3_S: 256,
}


@dataclass(frozen=True)
class Stored:
    """A matrix as it is in the file: addresses, and sizes of its blocks in bytes and in 32 columns."""

    weights: int
    table: int
    row_bytes: int
    unit_blocks: int
    unit_bytes: int


def can_unpack(type: GGMLType, n_columns: int) -> bool:
    return type in TYPES and n_columns % TYPES[type] == 0


def stored(at: Lowering, weight: Weight) -> Stored:
    data, unit = weight.data, TYPES[weight.type]
    row_bytes, n_columns = int(data.shape[-1]), int(weight.shape[-1])
    table = at.hold(unpack_table(weight.type))
    return Stored(at.hold(data), table, row_bytes, unit // COLUMNS, row_bytes // (n_columns // unit))


def tile_memory(at: Lowering, n_columns: int) -> int:
    """Address of scratch memory for an unpacked tile of each thread."""
    tile = n_columns // COLUMNS * (UNPACKED.code_bytes + UNPACKED.scale_bytes)
    return at.scratch_memory("tiles", at.pool.n_threads * tile)
