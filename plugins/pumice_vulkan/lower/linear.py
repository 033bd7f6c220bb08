"""Rules for products with one weight matrix."""

from __future__ import annotations

import math

from pumice.plugin import Node, Weight, concrete
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.lower.products import matrix, product
from pumice_vulkan.lower.rule import Lowering, Rule


def _claims(node: Node) -> bool:
    x, weight = node.inputs[:2]
    if x is None or not isinstance(weight, Weight) or weight.type not in FORMATS:
        return False
    return math.prod(concrete(x.shape[1:-1], 0, 0)) == 1


def _linear(at: Lowering, node: Node) -> None:
    x, weight, bias = node.inputs
    assert x is not None
    assert isinstance(weight, Weight)
    bias_place = None if bias is None else at.place(bias)
    product(at, x, matrix(at, weight), at.place(node.output), bias_place)


RULES = {"linear": Rule(_linear, _claims)}
