"""Products on matrix units whose lanes are known (shaders/matmul_lanes.comp), and products of up to 64 rows of x by
subgroups that divide the columns (shaders/matmul_few.comp)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pumice.plugin import Tensor
from pumice_vulkan.flags import ProductFlag
from pumice_vulkan.formats import BLOCK_COLUMNS, LANES_STEP
from pumice_vulkan.lower.halves import Order, halves, new_halves, tiles
from pumice_vulkan.lower.matrices import NO_FLAGS, Matrix, Routes, gate_flags, product_flags, use_cooperative
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.lower.tiles import TileProduct, cooperative_product
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.tuning import (
    LANES_UNIT,
    X_UNIT,
    FewShape,
    LanesShape,
    TileShape,
    few_shape,
    lanes_shape,
    lanes_width,
)

LEAST_LANES = 3  # rows of x from which on shaders/matmul_lanes.comp is faster than int8 products
LEAST_EXACT = 9  # the same where activations stay float
MOST_FEW = 64  # maximum rows of x for which shaders/matmul_few.comp is fastest


@dataclass(frozen=True)
class FewProduct:
    """A product of up to MOST_FEW rows of x on matrix units; with two weights ``silu(x @ w0.T) * (x @ w1.T)``.

    If ``output`` is set, the result is also stored as float16, unless the next product reads another order. ``routes``
    assigns vectors to experts (shaders/matmul_lanes.comp only). ``gelu``: GELU takes the place of SiLU.
    """

    x: Tensor
    weights: Sequence[Matrix]
    y: BufferSlice
    bias: BufferSlice | None = None
    residual: BufferSlice | None = None
    output: Tensor | None = None
    routes: Routes | None = None
    gelu: bool = False


def least_few(n_columns: int, n_rows: int = 0) -> int:
    """Return the rows of x from which on matrix units are faster; short products finish before the units are busy."""
    return 5 if n_columns <= 2048 or (n_columns >= 8192 and n_rows <= 2048) else 9


def use_few(
    lowering: Lowering, weight: Matrix, n_rows: int, paired: bool = False
) -> FewShape | LanesShape | TileShape | None:
    """Return the kernel's work division for ``n_rows`` rows of x, or None if no kernel here applies."""
    if not use_cooperative(lowering, weight):
        return None
    if few_order(lowering, weight.n_columns, n_rows, weight.format.for_lanes) is Order.LANES:
        n_all, width = weight.n_rows * (2 if paired else 1), lanes_width(lowering.device)
        return lanes_shape(n_all, weight.n_columns, n_rows, paired, weight.format, width)
    least = least_few(weight.n_columns, weight.n_rows)
    if not least <= n_rows <= MOST_FEW or weight.n_columns % BLOCK_COLUMNS:
        return None
    shape = few_shape(lowering.device, weight.n_rows, weight.n_columns, n_rows, paired)
    return shape if shape and shape.shared_bytes(X_UNIT) <= lowering.device.threadgroup_memory_bytes else None


def use_lanes(lowering: Lowering, n_columns: int, n_rows: int) -> bool:
    """Return True if shaders/matmul_lanes.comp multiplies ``n_rows`` rows of x by a matrix of this width."""
    least = LEAST_LANES if lowering.int8 else LEAST_EXACT
    return lowering.memory.lanes and n_rows >= least and n_columns % LANES_STEP == 0


def few_order(lowering: Lowering, n_columns: int, n_rows: int, for_lanes: bool = True) -> Order:
    """Return the order of float16 activations for products on matrix units.

    ``for_lanes``: ``Format.for_lanes`` of the matrix. For a matrix not known yet the order is a guess.
    """
    if for_lanes and use_lanes(lowering, n_columns, n_rows):
        return Order.LANES
    return Order.TILES if n_rows <= MOST_FEW else Order.ROWS


def few_product(lowering: Lowering, call: FewProduct, shape: FewShape | LanesShape | TileShape) -> None:
    """Append a dispatch of shaders/matmul_few.comp or matmul_lanes.comp, or of matmul_cooperative.comp for tiles."""
    first, last = call.weights[0], call.weights[-1]
    if isinstance(shape, TileShape):
        second = last if len(call.weights) > 1 else None
        of_tiles = TileProduct(
            *(call.x, first, call.y, call.bias, call.residual),
            second=second,
            output=call.output,
            order=Order.TILES,
            gelu=call.gelu,
        )
        cooperative_product(lowering, of_tiles, shape)
        return
    if isinstance(shape, LanesShape):
        lanes_product(lowering, call, shape)
        return
    paired = len(call.weights) > 1
    vectors = halves(lowering, call.x, Order.TILES)
    reads = few_order(lowering, first.n_rows, lowering.rows(call.x))  # the order that the next product reads
    left = new_halves(lowering, call.output, Order.TILES) if call.output and reads is Order.TILES else None
    m, n, k = lowering.unit
    fragments_m, fragments_n = shape.fragments_m * X_UNIT // m, -(-lowering.rows(call.x) // n)
    of_matrix = fragments_m // 2 if paired else fragments_m
    lowering.dispatch(
        f"matmul_few.{first.format.name}",
        count=call.x,
        reads=_operands(call, vectors),
        writes={"y": call.y, "halves": left or call.y},
        push={"n_rows": first.n_rows, "n_columns": first.n_columns},
        constants=[
            shape.parts_m * shape.parts_k * lowering.device.subgroup_size,
            *(first.row_blocks, _flags(call, left)),
            *(shape.parts_m, shape.parts_k, fragments_m, fragments_n, shape.k, X_UNIT, shape.depth, shape.early),
            *(m, n, k),
        ],
        grid=(-(-first.n_rows // (shape.parts_m * of_matrix * m)), 1, 1),
        full_subgroups=True,
        label=f"few {first.format.name} {first.n_rows * len(call.weights)}x{first.n_columns}",
    )


def lanes_product(lowering: Lowering, call: FewProduct, shape: LanesShape) -> None:
    """Append a dispatch of shaders/matmul_lanes.comp."""
    first, n_vectors = call.weights[0], lowering.rows(call.x)
    order = Order.LANE_ROWS if call.routes else Order.LANES
    vectors = halves(lowering, call.x, order)
    reads = order if call.routes else few_order(lowering, first.n_rows, n_vectors)  # the order of the next product
    left = new_halves(lowering, call.output, order) if call.output and reads is order else None
    n_tiles = -(-n_vectors // LANES_UNIT)
    routes = call.routes or Routes(-(-n_tiles // shape.fragments_n))
    of_matrix = shape.fragments_m // 2 if len(call.weights) > 1 else shape.fragments_m
    lowering.dispatch(
        f"matmul_lanes.{first.format.name}",
        count=call.x,
        reads=_operands(call, vectors) | routes.places(vectors),
        writes={"y": call.y, "halves": left or call.y},
        push={
            "n_rows": first.n_rows,
            "n_columns": first.n_columns,
            "n_matrix_rows": first.n_rows * first.n_matrices,
            "n_used": routes.n_used,
        },
        constants=[
            shape.parts_m * shape.parts_k * lowering.device.subgroup_size,
            *(first.row_blocks, _flags(call, left) | routes.flags),
            *(shape.parts_m, shape.parts_k, shape.fragments_m, shape.fragments_n, shape.depth),
            *(tiles(lowering, call.x, order)[0], bool(call.routes) or n_vectors > LANES_UNIT // 2),
            *(lanes_width(lowering.device), shape.x_first),
        ],
        grid=(routes.n_tiles, -(-first.n_rows // (shape.parts_m * of_matrix * LANES_UNIT)), 1),
        full_subgroups=True,
        label=f"lanes {first.format.name} {first.n_rows * len(call.weights)}x{first.n_columns}",
    )


def _operands(call: FewProduct, vectors: BufferSlice) -> dict[str, BufferSlice | Sequence[BufferSlice]]:
    return {
        "x": vectors,
        "weights": [call.weights[0].place, call.weights[-1].place],
        "bias": call.bias or vectors,
        "residual": call.residual or vectors,
    }


def _flags(call: FewProduct, left: BufferSlice | None) -> ProductFlag:
    paired = gate_flags(call.gelu) if len(call.weights) > 1 else NO_FLAGS
    return product_flags(call.bias, call.residual, False) | paired | (ProductFlag.HALF_Y if left else NO_FLAGS)
