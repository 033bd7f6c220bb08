"""Products of an activation with one matrix: the selection of a kernel by the number of rows."""

from __future__ import annotations

from pumice.plugin import Tensor
from pumice_vulkan.lower.few import MOST_FEW, FewProduct, few_product, use_few
from pumice_vulkan.lower.matrices import Experts, Matrix, use_cooperative
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.lower.tiles import TileProduct, cooperative_product, tile_numbers, tiled_product
from pumice_vulkan.lower.vectors import MOST_VECTORS, VectorProduct, vector_product
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.tuning import BLOCKS, block_shape

SMALL = 2**19  # maximum values of a matrix that stays in the cache while several rows read it
MOST_PASSED = 64  # rows of x up to which passes over the matrix occupy a device that tiles would leave idle


def product(
    lowering: Lowering,
    x: Tensor,
    weight: Matrix,
    y: BufferSlice,
    bias: BufferSlice | None = None,
    residual: BufferSlice | None = None,
) -> None:
    """Compute ``y = x @ weight.T + bias + residual`` with the kernel for the number of rows of x."""
    if shape := use_few(lowering, weight, lowering.rows(x)):
        few_product(lowering, FewProduct(x, [weight], y, bias, residual), shape)
    elif lowering.rows(x) <= MOST_VECTORS or lowering.invariant:
        vector_product(lowering, VectorProduct(x, [weight], [y], [bias], residual))
    elif lowering.rows(x) <= _most_alone(weight):
        vector_product(lowering, VectorProduct(x, [weight], [y], [bias], residual, experts=Experts(1)))
    elif use_cooperative(lowering, weight):
        cooperative_product(lowering, TileProduct(x, weight, y, bias, residual))
    else:
        _without_units(lowering, TileProduct(x, weight, y, bias, residual))


def _without_units(lowering: Lowering, call: TileProduct) -> None:
    """Compute a product in tiles, or a few rows in passes of shaders/matvec.comp where tiles are too few.

    A tile of a narrow matrix runs for as long as one of a wide one, while most of the device is idle; passes have ten
    times as many workgroups, and read the matrix again from the cache.
    """
    weight, n_rows = call.weight, lowering.rows(call.x)
    numbers = tile_numbers(lowering, call.x, weight)
    most, shared = lowering.device.description.max_threads_per_threadgroup, lowering.device.threadgroup_memory_bytes
    shape = block_shape(weight.n_rows, weight.n_columns, n_rows, numbers, most, shared)
    if shape is None and n_rows <= MOST_PASSED:
        vector_product(lowering, VectorProduct(call.x, [weight], [call.y], [call.bias], call.residual))
    else:
        tiled_product(lowering, call, shape or BLOCKS[numbers][-1])


def _most_alone(weight: Matrix) -> int:
    """Return the maximum rows of x of which each reads the matrix separately."""
    return MOST_FEW if weight.format.dense and weight.n_rows * weight.n_columns <= SMALL else 0
