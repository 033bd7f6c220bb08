"""Products with matrices of the rarer types, which stay as they are in the file."""

from __future__ import annotations

from collections.abc import Iterator

from pumice.plugin import GGMLType, Weight, block_size
from pumice_cpu.formats import COLUMNS, FORMATS, UNPACKED
from pumice_cpu.isa import current
from pumice_cpu.lower.rule import Lowering
from pumice_cpu.lower.tables import unpack_table

#: Columns of a block of each quantized type that is not packed.
TYPES = {type: block_size(type) for type in GGMLType if block_size(type) > 1 and type not in FORMATS}


def can_unpack(type: GGMLType, n_columns: int) -> bool:
    return type in TYPES and n_columns % TYPES[type] == 0


def stored(at: Lowering, weight: Weight) -> dict[str, int]:
    """Arguments that say where a matrix, or one matrix below the other, lies in the file, and how."""
    data, unit = weight.data, TYPES[weight.type]
    row_bytes, n_columns = int(data.shape[-1]), int(weight.shape[-1])
    tile_bytes = n_columns // COLUMNS * (UNPACKED.code_bytes + UNPACKED.scale_bytes)
    return {
        "weights": at.hold(data),
        "table": at.hold(unpack_table(weight.type)),
        "scratch": at.scratch_memory("tiles", at.pool.n_threads * tile_bytes),
        "n_rows": int(weight.shape[-2]),
        "n_blocks": n_columns // COLUMNS,
        "row_bytes": row_bytes,
        "unit_blocks": unit // COLUMNS,
        "unit_bytes": row_bytes // (n_columns // unit),
    }


def kernels(kind: str) -> Iterator[str]:
    """Those of ``kind`` for one row of activations, and for several."""
    for type in TYPES:
        yield from (f"linear_rare.{kind}:{type.name.lower()}:{width}" for width in (1, current().tokens))
