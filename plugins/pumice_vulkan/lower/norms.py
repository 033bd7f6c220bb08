"""Rules for norms."""

from __future__ import annotations

import math

from pumice.plugin import Tensor, fixed
from pumice.plugin.unstable import Limits, Node
from pumice_vulkan.lower.rows import inner
from pumice_vulkan.lower.rule import Lowering, Rule, local_size

MOST_VALUES = 8  # values of a row that an invocation holds
EVERY_ROW = 2**32 - 1  # rows of a bias that has one for each of x


def scaled_norm(lowering: Lowering, nodes: list[Node]) -> bool:
    """Compute a norm times a constant."""
    norm, scale = nodes
    _normalize(lowering, norm, scale.output, float(scale.attrs["factor"]))
    return True


def norm_sum(lowering: Lowering, nodes: list[Node]) -> bool:
    """Compute a norm plus a value of its shape."""
    norm, add = nodes
    (other,) = [tensor for tensor in add.operands() if tensor is not norm.output]
    _normalize(lowering, norm, add.output, bias=other, bias_rows=EVERY_ROW)
    return True


def _norm(lowering: Lowering, node: Node) -> None:
    bias = node.inputs.get("bias")
    _normalize(lowering, node, node.output, bias=bias, bias_rows=_rows(bias, int(node.output.shape[-1])))


def _normalize(
    lowering: Lowering,
    node: Node,
    result: Tensor,
    scale: float = 1.0,
    bias: Tensor | None = None,
    bias_rows: int = 1,
) -> None:
    """``bias_rows``: after how many rows those of the bias begin again."""
    x, weight = node.inputs["x"], node.inputs.get("weight")
    width = int(x.shape[-1])
    threads = local_size(width, min(1024, lowering.device.description.max_threads_per_threadgroup))
    n_values = -(-width // threads)
    operands = {"x": x, "weight": x if weight is None else weight, "bias": x if bias is None else bias}
    lowering.dispatch(
        node.op,
        count=x,
        reads={name: lowering.place(tensor) for name, tensor in operands.items()},
        writes={"y": lowering.place(result)},
        push={
            "scale": scale,
            "n_inner": inner(x),
            "width": width,
            "eps": node.attrs["eps"],
            "weight_rows": _rows(weight, width),
            "bias_rows": bias_rows,
        },
        constants=[threads, weight is not None, bias is not None, n_values if n_values <= MOST_VALUES else 0],
        grid=lowering.grid(lowering.rows(x) * inner(x)),
    )


def _rows(weight: Tensor | None, width: int) -> int:
    """Return the rows of a weight that differs from head to head."""
    return 1 if weight is None else math.prod(fixed(weight.shape)) // width


def _whole_rows(node: Node, limits: Limits) -> bool:
    x, *weights = node.operands()
    return all(weight.shape[-1] == x.shape[-1] for weight in weights)


RULES = {"rms_norm": Rule(_norm, _whole_rows), "layer_norm": Rule(_norm, _whole_rows)}
