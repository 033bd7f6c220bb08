"""Rules for norms and softmax: what works on rows of the last axis."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import OPERATIONS, Limits, Node, Tensor, Weight, fixed, row_size
from pumice_cpu.lower.rule import Lowering, Rule
from pumice_cpu.runtime import float_bits


def _weights_only(node: Node, limits: Limits) -> bool:
    return all(isinstance(tensor, Weight) for name, tensor in node.inputs.items() if name != "x")


def _norm(at: Lowering, node: Node) -> None:
    x = node.inputs["x"]
    names = OPERATIONS[node.op].operands[1:]  # weight, and of a layer_norm bias
    rows = [_weight_rows(x, node.inputs.get(name), default) for name, default in zip(names, (1, 0), strict=False)]
    n_weights = max(len(each) for each in rows)
    parameters = {
        name: at.hold(np.ascontiguousarray(np.broadcast_to(each, (n_weights, each.shape[1]))))
        for name, each in zip(names, rows, strict=True)
    }
    at.add(
        f"norms.{node.op}",
        count=at.count_address(x),
        x=at.address(x),
        y=at.address(node.output),
        n_rows=n_rows(x),
        n_weights=n_weights,
        width=int(x.shape[-1]),
        eps=float_bits(node.attrs["eps"]),
        **parameters,
    )


def _weight_rows(x: Tensor, weight: Tensor | None, default: float) -> NDArray[np.float32]:
    """A weight as rows ``[n, width]`` that repeat for every token."""
    width = int(x.shape[-1])
    if not isinstance(weight, Weight):
        return np.full((1, width), default, np.float32)
    values: NDArray[np.float32] = weight.dequantize()
    if len(weight.shape) == 1:
        return np.broadcast_to(values, (1, width))
    return np.broadcast_to(values, fixed(x.shape[1:])).reshape(-1, width)


def _softmax(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    at.add(
        "norms.softmax",
        count=at.count_address(x),
        x=at.address(x),
        y=at.address(node.output),
        n_rows=n_rows(x),
        width=int(x.shape[-1]),
    )


def _sinkhorn(at: Lowering, node: Node) -> None:
    _softmax(at, node)
    n = int(node.output.shape[-1])
    at.add(
        "norms.balance",
        count=at.count_address(node.output),
        y=at.address(node.output),
        n_matrices=n_rows(node.output) // n,
        n=n,
        n_iterations=node.attrs["n_iterations"],
        eps=float_bits(node.attrs["eps"]),
    )


def n_rows(x: Tensor) -> int:
    """Rows of the last axis in what belongs to one token."""
    return row_size(x.shape) // int(x.shape[-1])


RULES = {
    "rms_norm": Rule(_norm, _weights_only),
    "layer_norm": Rule(_norm, _weights_only),
    "softmax": Rule(_softmax),
    "sinkhorn": Rule(_sinkhorn),
}
