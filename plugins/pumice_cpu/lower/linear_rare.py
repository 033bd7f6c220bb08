"""Products with matrices of the rarer types, in their layout in the file."""

from __future__ import annotations

from collections.abc import Iterator

from pumice.plugin import GGMLType, Weight, block_size
from pumice_cpu.formats import COLUMNS, FORMATS, UNPACKED
from pumice_cpu.isa import current
from pumice_cpu.lower.rule import Argument, Lowering
from pumice_cpu.lower.tables import unpack_table

#: Columns per block of each quantized type that is not packed.
TYPES = {type: block_size(type) for type in GGMLType if block_size(type) > 1 and type not in FORMATS}


def can_unpack(type: GGMLType, n_columns: int) -> bool:
    return type in TYPES and n_columns % TYPES[type] == 0


def stored(lowering: Lowering, weight: Weight) -> dict[str, Argument]:
    """Return kernel arguments that locate a matrix, or stacked matrices, and describe its layout in the file."""
    data, unit = weight.data, TYPES[weight.type]
    row_bytes, n_columns = int(data.shape[-1]), int(weight.shape[-1])
    tile_bytes = n_columns // COLUMNS * (UNPACKED.code_bytes + UNPACKED.scale_bytes)
    return {
        "weights": data,
        "table": unpack_table(weight.type),
        "scratch": lowering.scratch_memory("tiles", lowering.pool.n_threads * tile_bytes),
        "n_rows": int(weight.shape[-2]),
        "n_blocks": n_columns // COLUMNS,
        "row_bytes": row_bytes,
        "unit_blocks": unit // COLUMNS,
        "unit_bytes": row_bytes // (n_columns // unit),
    }


def kernels(kind: str) -> Iterator[str]:
    """Yield the kernels of ``kind`` for one row of activations, and for several."""
    for type in TYPES:
        yield from (f"linear_rare.{kind}:{type.name.lower()}:{width}" for width in (1, current().tokens))
