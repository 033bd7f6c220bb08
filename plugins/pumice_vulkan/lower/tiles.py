"""Products of many rows of x in tiles: on matrix units (shaders/matmul_cooperative.comp), or without, in int8
(matmul_int8.comp), or in float32 or float16 (matmul.comp)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pumice.plugin import Tensor
from pumice_vulkan.flags import ProductFlag
from pumice_vulkan.lower.halves import Order, halves, new_halves
from pumice_vulkan.lower.halves import tiles as tiles_of
from pumice_vulkan.lower.matrices import NO_FLAGS, Matrix, Routes, gate_flags, product_flags
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.lower.vectors import quantized, use_int8
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.tuning import MOST_SPLIT_TILES, X_UNIT, BlockShape, TileNumbers, TileShape, tile_shape

N_TURNS = 4  # products with split columns that run at the same time


@dataclass(frozen=True)
class TileProduct:
    """``y = x @ weight.T + bias + residual``; ``routes`` assigns vectors to several matrices.

    Attributes:
        second: if set, the result is ``silu(x @ weight.T) * (x @ second.T)`` (matrix units only).
        output: if set, the result is also stored as float16 (matrix units only).
        order: order of float16 activations, x and output (matrix units only).
        gelu: GELU takes the place of SiLU.
    """

    x: Tensor
    weight: Matrix
    y: BufferSlice
    bias: BufferSlice | None = None
    residual: BufferSlice | None = None
    routes: Routes | None = None
    second: Matrix | None = None
    output: Tensor | None = None
    order: Order = Order.ROWS
    gelu: bool = False

    def flags(self, columns: int) -> ProductFlag:
        """Return the flags for a kernel that processes ``columns`` columns at a time."""
        of_rows = product_flags(self.bias, self.residual, self.weight.n_columns % columns)
        paired = gate_flags(self.gelu) if self.second else NO_FLAGS
        half = ProductFlag.HALF_Y if self.output else NO_FLAGS
        return of_rows | paired | half | (self.routes.flags if self.routes else NO_FLAGS)


def cooperative_product(lowering: Lowering, call: TileProduct, shape: TileShape | None = None) -> None:
    """Append a dispatch of shaders/matmul_cooperative.comp."""
    weight, paired = call.weight, call.second is not None
    n_vectors = lowering.rows(call.x)
    n_rows = weight.n_rows * (2 if paired else 1)
    shape = shape or tile_shape(lowering.device, n_rows, weight.n_columns, n_vectors, paired)
    vectors = halves(lowering, call.x, call.order)
    routes = call.routes or Routes(-(-n_vectors // shape.n))
    n_row_tiles = -(-weight.n_rows // (shape.m // 2 if paired else shape.m))
    sums, counters = _split_memory(lowering, shape, n_row_tiles * routes.n_tiles)
    left = new_halves(lowering, call.output, call.order) if call.output else None
    lowering.dispatch(
        f"matmul_cooperative.{weight.format.name}",
        count=call.x,
        reads={
            "x": vectors,
            "weights": [weight.place, (call.second or weight).place],
            "bias": call.bias or vectors,
            "residual": call.residual or vectors,
            **routes.places(vectors),
        },
        writes={"sums": sums or call.y, "counters": counters or call.y, "y": call.y, "halves": left or call.y},
        push={
            "n_rows": weight.n_rows,
            "n_columns": weight.n_columns,
            "n_used": routes.n_used,
            "n_matrix_rows": weight.n_rows * weight.n_matrices,
        },
        constants=[
            shape.warps_m * shape.warps_n * lowering.device.subgroup_size,
            *(weight.row_blocks, call.flags(shape.k)),
            *(shape.m, shape.n, shape.warps_m, shape.warps_n, shape.k, X_UNIT),
            *(shape.splits, tiles_of(lowering, call.x, call.order)[0], *lowering.unit),
        ],
        grid=(n_row_tiles, routes.n_tiles, routes.n_heads * shape.splits),
        full_subgroups=True,
        label=f"matmul {weight.format.name} {n_rows}x{weight.n_columns}",
    )


def _split_memory(
    lowering: Lowering, shape: TileShape | BlockShape, n_tiles: int
) -> tuple[BufferSlice, BufferSlice] | tuple[None, None]:
    """Return memory for the sums of workgroups that share tiles, and their counters, which are zero between products.

    N_TURNS products have different memory, so products of the same x can run at the same time. The counters are
    created by any product, since later ones may not upload constants.
    """
    n_counters = N_TURNS * MOST_SPLIT_TILES
    counters = lowering.constant(("counters of tiles", n_counters), lambda: np.zeros(n_counters, np.uint32))
    if shape.splits == 1:
        return None, None
    if n_tiles > MOST_SPLIT_TILES:
        raise ValueError(f"{n_tiles} tiles have split columns, and there are {MOST_SPLIT_TILES} counters")
    turn = lowering.remembered["split turn"] = (lowering.remembered.get("split turn", 0) + 1) % N_TURNS
    sums = lowering.scratch(f"sums of tiles {turn}", 4 * n_tiles * shape.splits * shape.m * shape.n)
    return sums, counters.part(turn * MOST_SPLIT_TILES, MOST_SPLIT_TILES)


def tile_numbers(lowering: Lowering, x: Tensor, weight: Matrix) -> TileNumbers:
    """Return what products in tiles without matrix units multiply.

    Rows of x are workgroups of the dispatch that quantizes them; float32 weights may need the precision.
    """
    n_rows = lowering.rows(x) * lowering.width(x) // weight.n_columns
    if use_int8(lowering, weight) and n_rows <= lowering.device.description.max_threadgroups[1]:
        return TileNumbers.INT8
    is_half = lowering.memory.half and weight.format.name != "f32"
    return TileNumbers.HALF if is_half else TileNumbers.FLOAT


def tiled_product(lowering: Lowering, call: TileProduct, shape: BlockShape) -> None:
    """Append a dispatch of shaders/matmul_int8.comp or matmul.comp."""
    weight, numbers = call.weight, tile_numbers(lowering, call.x, call.weight)
    int8 = numbers == TileNumbers.INT8
    vectors = quantized(lowering, call.x, weight.row_blocks) if int8 else lowering.place(call.x)
    routes = call.routes or Routes(-(-lowering.rows(call.x) // shape.n))
    if shape.splits > 1 and routes.n_heads > 1:
        raise ValueError(f"columns of {routes.n_heads} matrices are not split")
    n_row_tiles = -(-weight.n_rows // shape.m)
    sums, counters = _split_memory(lowering, shape, n_row_tiles * routes.n_tiles)
    lowering.dispatch(
        f"{numbers.value}.{weight.format.name}",
        count=call.x,
        reads={
            "x": vectors,
            "weights": weight.place,
            "bias": call.bias or vectors,
            "residual": call.residual or vectors,
            **routes.places(vectors),
        },
        writes={"sums": sums or call.y, "counters": counters or call.y, "y": call.y},
        push={
            "n_rows": weight.n_rows,
            "n_columns": weight.n_columns,
            "n_used": routes.n_used,
            "n_matrix_rows": weight.n_rows * weight.n_matrices,
        },
        constants=[
            *(weight.row_blocks, call.flags(4)),
            *(shape.threads_m, shape.threads_n, shape.rows, shape.vectors, shape.splits),
            *(() if int8 else (shape.depth, shape.step)),
        ],
        grid=(n_row_tiles, routes.n_tiles, routes.n_heads * shape.splits),
        label=f"matmul {weight.format.name} {weight.n_rows}x{weight.n_columns}",
    )
