"""Products of many rows in tiles of bfloat16, beside the kernels for few rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pumice.plugin import Tensor
from pumice_cpu.formats import BY_NAME, COLUMNS, TILE_BLOCKS, TILE_ROWS, TILE_SCRATCH
from pumice_cpu.isa import current
from pumice_cpu.lower.rule import Argument, Lowering


def round_to_tiles(lowering: Lowering, x: Tensor, count: int, *, alongside: bool) -> None:
    """Add the kernel that rounds the rows of ``x`` to tiles, unless they are in them.

    Args:
        count: address of the number of rows if they are many, from ``Lowering.split_count``.
        alongside: the previous kernel prepares ``x`` for a product of few rows, and waits for those before.
    """
    if lowering.in_tiles is not x:
        kernel, n_blocks = f"tiles.group:{lowering.memory.tiles}", int(x.shape[-1]) // COLUMNS
        add = lowering.add_alongside if alongside else lowering.add
        add(kernel, count=count, x=x, y=_activations(lowering, x), n_blocks=n_blocks)
        lowering.in_tiles = x


def multiply_tiles(
    lowering: Lowering, x: Tensor, y: Tensor, format: str, count: int, matrix: Mapping[str, Argument]
) -> None:
    """Add the kernel for many rows after that for few. A step has many or few: one of both kernels finds no rows.

    Args:
        format: format of the matrix, or ``bf16``.
        count: as for ``round_to_tiles``, which comes before.
        matrix: arguments of the kernel that describe the matrix.
    """
    scratch = lowering.scratch_memory("weight tiles", lowering.pool.n_threads * TILE_SCRATCH)
    lowering.memory.varies = True
    arguments = {"count": count, "x": _activations(lowering, x), "scratch": scratch, **matrix}
    lowering.add_alternative(f"tiles.matmul:{format}:{lowering.memory.tiles}", y, **arguments)


def _activations(lowering: Lowering, x: Tensor) -> int:
    """Return the address of the memory for tiles of activations."""
    padded = -(-int(x.shape[-1]) // (COLUMNS * TILE_BLOCKS)) * COLUMNS * TILE_BLOCKS
    return lowering.scratch_memory("activation tiles", 2 * (lowering.max_rows + TILE_ROWS) * padded)


def kernels() -> Iterator[str]:
    if current().multiplies_bf16:
        yield "tiles.group:amx"
        yield from (f"tiles.matmul:{name}:amx" for name in [*BY_NAME, "bf16"])
