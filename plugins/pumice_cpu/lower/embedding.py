"""The rule for looking up tokens: a few rows, decoded in Python before the table runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Input, Node, Weight, dequantize
from pumice_cpu.lower.rule import Lowering, Rule


def _claims(node: Node) -> bool:
    weight, ids = node.inputs
    return isinstance(ids, Input) and isinstance(weight, Weight) and len(weight.shape) == 2


def _embedding(at: Lowering, node: Node) -> None:
    weight, ids = node.inputs
    assert isinstance(weight, Weight)
    assert ids is not None
    data, type, name = weight.data, weight.type, ids.name

    def look_up(inputs: Mapping[str, NDArray[Any]]) -> None:
        rows = inputs[name]
        np.copyto(at.view(node.output, len(rows)), dequantize(data[rows], type))

    at.before.append(look_up)


RULES = {"embedding": Rule(_embedding, _claims)}
