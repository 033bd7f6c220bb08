"""Rules for looking up rows of a table: tokens in Python before the table of operations runs, the rest by a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Input, Node, Tensor, Weight, concrete, dequantize
from pumice_cpu.lower.rule import Lowering, Rule, row_width

SMALL = 2**22  # values of a table that is kept as float32


def _claims(node: Node) -> bool:
    weight, ids = node.inputs
    if not isinstance(weight, Weight) or ids is None:
        return False
    return _is_small(weight) or (isinstance(ids, Input) and len(ids.shape) == 1)


def _is_small(weight: Weight) -> bool:
    """A bias or a scale for each expert, a row for each position."""
    return len(weight.shape) == 1 or int(np.prod(concrete(weight.shape, 0, 0))) <= SMALL


def _embedding(at: Lowering, node: Node) -> None:
    weight, ids = node.inputs
    assert isinstance(weight, Weight)
    assert ids is not None
    if _is_small(weight):
        _look_up_in_kernel(at, weight, ids, node.output)
    else:
        _look_up_before(at, weight, ids, node.output)


def _look_up_in_kernel(at: Lowering, weight: Weight, ids: Tensor, output: Tensor) -> None:
    at.add(
        "rows.pick",
        count=at.count(ids),
        x=at.address(weight),
        ids=at.address(ids),
        y=at.address(output),
        n_ids=row_width(ids),
        width=int(np.prod(concrete(weight.shape[1:], 0, 0))),
    )


def _look_up_before(at: Lowering, weight: Weight, ids: Tensor, output: Tensor) -> None:
    """Few rows of a large table, decoded as they are needed."""
    data, type, name = weight.data, weight.type, ids.name

    def look_up(inputs: Mapping[str, NDArray[Any]]) -> None:
        rows = inputs[name]
        np.copyto(at.view(output, len(rows)), dequantize(data[rows], type))

    at.before.append(look_up)


RULES = {"embedding": Rule(_embedding, _claims)}
