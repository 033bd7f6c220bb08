"""Rules for norms and softmax, which work on rows of the last axis."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Tensor, Weight, fixed
from pumice.plugin.unstable import OPERATIONS, Limits, Node, row_size
from pumice_cpu.lower.rule import Lowering, Rule
from pumice_cpu.runtime import float_bits


def _weights_only(node: Node, limits: Limits) -> bool:
    return all(isinstance(tensor, Weight) for name, tensor in node.inputs.items() if name != "x")


def _norm(lowering: Lowering, node: Node) -> None:
    x = node.inputs["x"]
    names = OPERATIONS[node.op].operands[1:]  # weight, and for layer_norm the bias
    rows = [_weight_rows(x, node.inputs.get(name), default) for name, default in zip(names, (1, 0), strict=False)]
    n_weights = max(len(values) for values in rows)
    parameters = {
        name: np.ascontiguousarray(np.broadcast_to(values, (n_weights, values.shape[1])))
        for name, values in zip(names, rows, strict=True)
    }
    sizes = {"n_rows": n_rows(x), "n_weights": n_weights, "width": int(x.shape[-1])}
    eps = float_bits(node.attrs["eps"])
    lowering.add(f"norms.{node.op}", x, x=x, y=node.output, **sizes, eps=eps, **parameters)


def _weight_rows(x: Tensor, weight: Tensor | None, default: float) -> NDArray[np.float32]:
    """Return a weight as rows ``[n, width]`` that repeat for every token."""
    width = int(x.shape[-1])
    if not isinstance(weight, Weight):
        return np.full((1, width), default, np.float32)
    values: NDArray[np.float32] = weight.dequantize()
    if len(weight.shape) == 1:
        return np.broadcast_to(values, (1, width))
    return np.broadcast_to(values, fixed(x.shape[1:])).reshape(-1, width)


def _softmax(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    lowering.add("norms.softmax", x, x=x, y=node.output, n_rows=n_rows(x), width=int(x.shape[-1]))


def _sinkhorn(lowering: Lowering, node: Node) -> None:
    _softmax(lowering, node)
    y, n = node.output, int(node.output.shape[-1])
    limits = {"n_iterations": node.attrs["n_iterations"], "eps": float_bits(node.attrs["eps"])}
    lowering.add("norms.balance", y, y=y, n_matrices=n_rows(y) // n, n=n, **limits)


def n_rows(x: Tensor) -> int:
    """Return the number of rows of the last axis per token."""
    return row_size(x.shape) // int(x.shape[-1])


RULES = {
    "rms_norm": Rule(_norm, _weights_only),
    "layer_norm": Rule(_norm, _weights_only),
    "softmax": Rule(_softmax),
    "sinkhorn": Rule(_sinkhorn),
}
