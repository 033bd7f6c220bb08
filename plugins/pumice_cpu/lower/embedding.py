"""Rules for looking up rows of a table: tokens in Python before the table of operations runs, the rest by a kernel."""

from __future__ import annotations

import math

from pumice.plugin import Input, Limits, Node, Tensor, Weight, dequantize, fixed, row_size
from pumice_cpu.lower.rule import Lowering, Rule

SMALL = 2**22  # values of a table that is kept as float32


def _claims(node: Node, limits: Limits) -> bool:
    weight, ids = node.weight("weight"), node.inputs["ids"]
    return _is_small(weight) or (isinstance(ids, Input) and len(ids.shape) == 1)


def _is_small(weight: Weight) -> bool:
    """A bias or a scale for each expert, a row for each position."""
    return len(weight.shape) == 1 or math.prod(fixed(weight.shape)) <= SMALL


def _embedding(at: Lowering, node: Node) -> None:
    weight, ids = node.weight("weight"), node.inputs["ids"]
    if _is_small(weight):
        _look_up_in_kernel(at, weight, ids, node.output)
    else:
        _look_up_before(at, weight, ids, node.output)


def _look_up_in_kernel(at: Lowering, weight: Weight, ids: Tensor, output: Tensor) -> None:
    at.add(
        "rows.pick",
        count=at.count_address(ids),
        x=at.address(weight),
        ids=at.address(ids),
        y=at.address(output),
        n_ids=row_size(ids.shape),
        width=row_size(weight.shape),
    )


def _look_up_before(at: Lowering, weight: Weight, ids: Tensor, output: Tensor) -> None:
    """Few rows of a large table, decoded as they are needed."""
    data, type, name = weight.data, weight.type, ids.name
    at.add_computed(output, lambda inputs: dequantize(data[inputs[name]], type))


RULES = {"embedding": Rule(_embedding, _claims)}
