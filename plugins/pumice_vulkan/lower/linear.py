"""Rules for products with one weight matrix."""

from __future__ import annotations

import math

from pumice.plugin import fixed
from pumice.plugin.unstable import Limits, Node
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.lower.experts import pair_products
from pumice_vulkan.lower.matrices import Experts, matrix, repeated_matrix
from pumice_vulkan.lower.products import product
from pumice_vulkan.lower.rule import Lowering, Rule
from pumice_vulkan.packing import packed_bytes

MOST_REPEATED = 2**24  # bytes of all copies of a matrix
MOST_COPIES = 2**12  # each is a slice of the grid, in up to eight parts, of which devices have 65,535 at least


def _claims(node: Node, limits: Limits) -> bool:
    weight, n_vectors = node.weight("weight"), _vectors_of_row(node)
    if weight.type not in FORMATS:
        return False
    if n_vectors == 1:
        return True
    is_small = n_vectors <= MOST_COPIES and n_vectors * packed_bytes(weight) <= MOST_REPEATED
    repeats = FORMATS[weight.type].dense and is_small
    return repeats and "bias" not in node.inputs and isinstance(node.inputs["x"].shape[0], str)


def _linear(lowering: Lowering, node: Node) -> None:
    x, weight, bias = node.inputs["x"], node.weight("weight"), node.inputs.get("bias")
    y, n_vectors = lowering.place(node.output), _vectors_of_row(node)
    if n_vectors > 1:
        # A kernel counts rows of the step, which are several vectors here: each has a copy of the matrix, like a head.
        pair_products(lowering, x, repeated_matrix(lowering, weight, n_vectors), y, Experts(n_vectors))
        return
    product(lowering, x, matrix(lowering, weight), y, None if bias is None else lowering.place(bias))


def _vectors_of_row(node: Node) -> int:
    """Return the number of vectors in a row of x, such as its heads."""
    return math.prod(fixed(node.inputs["x"].shape[1:-1]))


RULES = {"linear": Rule(_linear, _claims)}
