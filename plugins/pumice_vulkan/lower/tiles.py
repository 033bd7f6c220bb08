"""Products of many rows of x, in tiles: on matrix units (shaders/matmul_cooperative.comp), or without (matmul.comp)."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.plugin import Tensor
from pumice_vulkan.lower.halves import UNIT, halves
from pumice_vulkan.lower.matrices import Matrix, Routes, product_flags
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.memory import Place
from pumice_vulkan.tuning import TileShape, tile_shape

TILE_ROWS, TILE_VECTORS = 64, 32  # that a workgroup of shaders/matmul.comp has


@dataclass(frozen=True)
class TileProduct:
    """``y = x @ weight.T + bias + residual``; ``routes``: of several matrices, which vectors each has."""

    x: Tensor
    weight: Matrix
    y: Place
    bias: Place | None = None
    residual: Place | None = None
    routes: Routes | None = None

    def flags(self, columns: int) -> int:
        """For a kernel that takes so many columns at a time."""
        of_rows = product_flags(self.bias, self.residual, self.weight.n_columns % columns)
        return of_rows | self.routes.flags if self.routes else of_rows


def cooperative_product(at: Lowering, call: TileProduct, shape: TileShape | None = None) -> None:
    shape = shape or tile_shape(at.device, call.weight.n_rows, at.rows(call.x))
    threads = shape.warps_m * shape.warps_n * at.device.subgroup_size
    sizes = [shape.m, shape.n, shape.warps_m, shape.warps_n, shape.k, UNIT]
    constants = [threads, call.weight.row_blocks, call.flags(shape.k), *sizes]
    _dispatch(at, "matmul_cooperative", call, halves(at, call.x), (shape.m, shape.n), constants, full_subgroups=True)


def tiled_product(at: Lowering, call: TileProduct) -> None:
    constants = [call.weight.row_blocks, call.flags(4)]
    _dispatch(at, "matmul", call, at.place(call.x), (TILE_ROWS, TILE_VECTORS), constants)


def _dispatch(
    at: Lowering,
    kernel: str,
    call: TileProduct,
    vectors: Place,
    tile: tuple[int, int],
    constants: list[int],
    full_subgroups: bool = False,
) -> None:
    """A workgroup for each tile of so many rows of the matrix and vectors; ``vectors`` is where it reads ``x``."""
    weight, (tile_rows, tile_vectors) = call.weight, tile
    routes = call.routes or Routes(-(-at.rows(call.x) // tile_vectors))
    at.dispatch(
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
