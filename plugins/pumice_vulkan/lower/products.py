"""Products of an activation with one matrix: which kernel for how many rows."""

from __future__ import annotations

from pumice.plugin import Tensor
from pumice_vulkan.lower.few import MOST_FEW, FewProduct, few_product, use_few
from pumice_vulkan.lower.matrices import Experts, Matrix, use_cooperative
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.lower.tiles import TileProduct, cooperative_product, tiled_product
from pumice_vulkan.lower.vectors import MOST_VECTORS, VectorProduct, vector_product
from pumice_vulkan.memory import Place

SMALL = 2**19  # values of a matrix that is read from the cache for each of some rows
MOST_ROUTED = 512  # such rows of float32, of which tiles would keep few processors of a large device busy


def product(
    at: Lowering, x: Tensor, weight: Matrix, y: Place, bias: Place | None = None, residual: Place | None = None
) -> None:
    """``y = x @ weight.T + bias + residual`` with the kernel for so many rows of x."""
    if shape := use_few(at, weight, at.rows(x)):
        few_product(at, FewProduct(x, [weight], y, bias, residual), shape)
    elif at.rows(x) <= MOST_VECTORS:
        vector_product(at, VectorProduct(x, [weight], [y], [bias], residual))
    elif at.rows(x) <= _most_alone(at, weight):
        vector_product(at, VectorProduct(x, [weight], [y], [bias], residual, experts=Experts(1)))
    elif use_cooperative(at, weight):
        cooperative_product(at, TileProduct(x, weight, y, bias, residual))
    else:
        tiled_product(at, TileProduct(x, weight, y, bias, residual))


def _most_alone(at: Lowering, weight: Matrix) -> int:
    """The most rows of x each of which reads the matrix for itself."""
    if not weight.format.dense or weight.n_rows * weight.n_columns > SMALL:
        return 0
    return MOST_ROUTED if at.cooperative and weight.format.name == "f32" else MOST_FEW
