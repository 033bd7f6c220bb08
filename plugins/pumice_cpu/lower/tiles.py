"""Products of many rows in tiles of bfloat16, beside the kernels for few rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pumice.plugin import Tensor
from pumice_cpu.formats import BY_NAME, COLUMNS, TILE_BLOCKS, TILE_ROWS, TILE_SCRATCH
from pumice_cpu.isa import current
from pumice_cpu.lower.rule import Lowering


def multiply_tiles(
    lowering: Lowering, x: Tensor, y: Tensor, format: str, count: int, matrix: Mapping[str, int]
) -> None:
    """Add the kernel for many rows. A step has many or few: of this kernel and that for few one finds no rows.

    Args:
        format: format of the matrix, or ``bf16``.
        count: address of the number of rows if they are many, from ``Lowering.split_count``.
        matrix: arguments of the kernel that describe the matrix.
    """
    kind, n_columns = lowering.memory.tiles, int(x.shape[-1])
    padded = -(-n_columns // (COLUMNS * TILE_BLOCKS)) * COLUMNS * TILE_BLOCKS
    values = lowering.scratch_memory("activation tiles", 2 * (lowering.max_rows + TILE_ROWS) * padded)
    if lowering.in_tiles is not x:
        n_blocks = n_columns // COLUMNS
        lowering.add(f"tiles.group:{kind}", count=count, x=lowering.address(x), y=values, n_blocks=n_blocks)
        lowering.in_tiles = x
    scratch = lowering.scratch_memory("weight tiles", lowering.pool.n_threads * TILE_SCRATCH)
    lowering.memory.varies = True
    kernel = f"tiles.matmul:{format}:{kind}"
    lowering.add_product(kernel, of=x, into=y, count=count, **matrix, x=values, scratch=scratch)


def kernels() -> Iterator[str]:
    if current().multiplies_bf16:
        yield "tiles.group:amx"
        yield from (f"tiles.matmul:{name}:amx" for name in [*BY_NAME, "bf16"])
