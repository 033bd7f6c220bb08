"""Products of many rows of x in tiles: on matrix units (shaders/matmul_cooperative.comp), or without (matmul.comp)."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.plugin import Tensor
from pumice_vulkan.lower.halves import UNIT, halves
from pumice_vulkan.lower.matrices import Matrix, Routes, product_flags
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.tuning import TileShape, tile_shape

TILE_ROWS, TILE_VECTORS = 64, 32  # tile of a workgroup in shaders/matmul.comp


@dataclass(frozen=True)
class TileProduct:
    """``y = x @ weight.T + bias + residual``; ``routes`` assigns vectors to several matrices."""

    x: Tensor
    weight: Matrix
    y: BufferSlice
    bias: BufferSlice | None = None
    residual: BufferSlice | None = None
    routes: Routes | None = None

    def flags(self, columns: int) -> int:
        """Return the flags for a kernel that processes ``columns`` columns at a time."""
        of_rows = product_flags(self.bias, self.residual, self.weight.n_columns % columns)
        return of_rows | self.routes.flags if self.routes else of_rows


def cooperative_product(lowering: Lowering, call: TileProduct, shape: TileShape | None = None) -> None:
    shape = shape or tile_shape(lowering.device, call.weight.n_rows, lowering.rows(call.x))
    threads = shape.warps_m * shape.warps_n * lowering.device.subgroup_size
    sizes = [shape.m, shape.n, shape.warps_m, shape.warps_n, shape.k, UNIT]
    constants = [threads, call.weight.row_blocks, call.flags(shape.k), *sizes]
    _dispatch(
        lowering,
        "matmul_cooperative",
        call,
        halves(lowering, call.x),
        (shape.m, shape.n),
        constants,
        full_subgroups=True,
    )


def tiled_product(lowering: Lowering, call: TileProduct) -> None:
    constants = [call.weight.row_blocks, call.flags(4)]
    _dispatch(lowering, "matmul", call, lowering.place(call.x), (TILE_ROWS, TILE_VECTORS), constants)


def _dispatch(
    lowering: Lowering,
    kernel: str,
    call: TileProduct,
    vectors: BufferSlice,
    tile: tuple[int, int],
    constants: list[int],
    full_subgroups: bool = False,
) -> None:
    """Append a dispatch with a workgroup per tile of matrix rows and vectors; ``vectors`` is the place of ``x``."""
    weight, (tile_rows, tile_vectors) = call.weight, tile
    routes = call.routes or Routes(-(-lowering.rows(call.x) // tile_vectors))
    lowering.dispatch(
        f"{kernel}.{weight.format.name}",
        count=call.x,
        reads={
            "x": vectors,
            "weights": weight.place,
            "bias": call.bias or vectors,
            "residual": call.residual or vectors,
            **routes.places(vectors),
        },
        writes={"y": call.y},
        push={
            "n_rows": weight.n_rows,
            "n_columns": weight.n_columns,
            "n_used": routes.n_used,
            "n_matrix_rows": weight.n_rows * weight.n_matrices,
        },
        constants=constants,
        grid=(-(-weight.n_rows // tile_rows), routes.n_tiles, routes.n_heads),
        full_subgroups=full_subgroups,
        label=f"matmul {weight.format.name} {weight.n_rows}x{weight.n_columns}",
    )
