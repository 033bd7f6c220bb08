"""Rules for products with weight matrices."""

from __future__ import annotations

import math

from pumice.plugin import Node, Tensor, Weight, concrete
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.lower.products import Experts, matrix, product, vector_product
from pumice_vulkan.lower.rule import Lowering, Rule


def _claims(node: Node) -> bool:
    weight = node.inputs[1]
    return isinstance(weight, Weight) and weight.type in FORMATS


def _claims_linear(node: Node) -> bool:
    x = node.inputs[0]
    return _claims(node) and x is not None and math.prod(concrete(x.shape[1:-1], 0, 0)) == 1


def _linear(at: Lowering, node: Node) -> None:
    x, weight, bias = node.inputs
    assert x is not None
    assert isinstance(weight, Weight)
    bias_place = None if bias is None else at.place(bias)
    product(at, x, matrix(at, weight), at.place(node.output), bias_place)


def _batched_linear(at: Lowering, node: Node) -> None:
    x, weight = node.operands()
    assert isinstance(weight, Weight)
    experts = Experts(int(weight.shape[0]))
    vector_product(at, x, [matrix(at, weight)], [at.place(node.output)], experts=experts)


def _mul_mat_id(at: Lowering, node: Node) -> None:
    x, weight, ids = node.operands()
    assert isinstance(weight, Weight)
    experts = Experts(int(ids.shape[1]), at.place(ids), own_x=_has_own_x(x))
    vector_product(at, x, [matrix(at, weight)], [at.place(node.output)], experts=experts)


def _has_own_x(x: Tensor) -> bool:
    """Whether each expert of a token has an input of its own."""
    return len(x.shape) == 3


RULES = {
    "linear": Rule(_linear, _claims_linear),
    "batched_linear": Rule(_batched_linear, _claims),
    "mul_mat_id": Rule(_mul_mat_id, _claims),
}
