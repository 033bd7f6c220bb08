"""Rules for products with one weight matrix."""

from __future__ import annotations

import math

from pumice.plugin import Limits, Node, fixed
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.lower.matrices import matrix
from pumice_vulkan.lower.products import product
from pumice_vulkan.lower.rule import Lowering, Rule


def _claims(node: Node, limits: Limits) -> bool:
    return node.weight("weight").type in FORMATS and math.prod(fixed(node.inputs["x"].shape[1:-1])) == 1


def _linear(lowering: Lowering, node: Node) -> None:
    x, weight, bias = node.inputs["x"], node.weight("weight"), node.inputs.get("bias")
    bias_place = None if bias is None else lowering.place(bias)
    product(lowering, x, matrix(lowering, weight), lowering.place(node.output), bias_place)


RULES = {"linear": Rule(_linear, _claims)}
