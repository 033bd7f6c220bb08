"""Products of up to 64 rows of x on matrix units; subgroups divide the columns (shaders/matmul_few.comp)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pumice.plugin import Tensor
from pumice_vulkan.flags import ProductFlag
from pumice_vulkan.formats import BLOCK_COLUMNS
from pumice_vulkan.lower.halves import UNIT, halves, new_halves
from pumice_vulkan.lower.matrices import NO_FLAGS, Matrix, product_flags, use_cooperative
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.lower.tiles import TileProduct, cooperative_product
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.tuning import FewShape, TileShape, few_shape

MOST_FEW = 64  # maximum rows of x for which shaders/matmul_few.comp is fastest


@dataclass(frozen=True)
class FewProduct:
    """A product of up to MOST_FEW rows of x on matrix units; with two weights ``silu(x @ w0.T) * (x @ w1.T)``.

    If ``output`` is set, the result is also stored as float16.
    """

    x: Tensor
    weights: Sequence[Matrix]
    y: BufferSlice
    bias: BufferSlice | None = None
    residual: BufferSlice | None = None
    output: Tensor | None = None


def least_few(n_columns: int, n_rows: int = 0) -> int:
    """Return the rows of x from which on matrix units are faster; short products finish before the units are busy."""
    return 5 if n_columns <= 2048 or (n_columns >= 8192 and n_rows <= 2048) else 9


def use_few(lowering: Lowering, weight: Matrix, n_rows: int, paired: bool = False) -> FewShape | TileShape | None:
    """Return the kernel's work division for ``n_rows`` rows of x, or None if the kernel does not apply."""
    least = least_few(weight.n_columns, weight.n_rows)
    if not least <= n_rows <= MOST_FEW or not use_cooperative(lowering, weight) or weight.n_columns % BLOCK_COLUMNS:
        return None
    shape = few_shape(lowering.device, weight.n_rows, weight.n_columns, n_rows, paired)
    return shape if shape and shape.shared_bytes(UNIT) <= lowering.device.threadgroup_memory_bytes else None


def few_product(lowering: Lowering, call: FewProduct, shape: FewShape | TileShape) -> None:
    """Append a dispatch of shaders/matmul_few.comp, or of shaders/matmul_cooperative.comp for a shape of tiles."""
    first, last = call.weights[0], call.weights[-1]
    if isinstance(shape, TileShape):
        second = last if len(call.weights) > 1 else None
        tiles = TileProduct(
            call.x, first, call.y, call.bias, call.residual, second=second, output=call.output, tiled=True
        )
        cooperative_product(lowering, tiles, shape)
        return
    n_rows, paired = lowering.rows(call.x), len(call.weights) > 1
    fragments_n = -(-n_rows // UNIT)
    vectors = halves(lowering, call.x, tiled=True)
    left = new_halves(lowering, call.output, tiled=True) if call.output else None
    flags = product_flags(call.bias, call.residual, False) | (ProductFlag.PAIRED if paired else NO_FLAGS)
    of_matrix = shape.fragments_m // 2 if paired else shape.fragments_m
    lowering.dispatch(
        f"matmul_few.{first.format.name}",
        count=call.x,
        reads={
            "x": vectors,
            "weights": [first.place, last.place],
            "bias": call.bias or vectors,
            "residual": call.residual or vectors,
        },
        writes={"y": call.y, "halves": left or call.y},
        push={"n_rows": first.n_rows, "n_columns": first.n_columns},
        constants=[
            shape.parts_m * shape.parts_k * lowering.device.subgroup_size,
            *(first.row_blocks, flags | (ProductFlag.HALF_Y if left else NO_FLAGS)),
            *(shape.parts_m, shape.parts_k, shape.fragments_m, fragments_n, shape.k, UNIT),
            *(shape.depth, shape.early),
        ],
        grid=(-(-first.n_rows // (shape.parts_m * of_matrix * UNIT)), 1, 1),
        full_subgroups=True,
        label=f"few {first.format.name} {first.n_rows * len(call.weights)}x{first.n_columns}",
    )
