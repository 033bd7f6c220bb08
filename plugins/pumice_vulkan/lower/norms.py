"""Rules for norms."""

from __future__ import annotations

import math

from pumice.plugin import Tensor, fixed
from pumice.plugin.unstable import Limits, Node
from pumice_vulkan.lower.rows import inner
from pumice_vulkan.lower.rule import Lowering, Rule, local_size


def scaled_norm(lowering: Lowering, nodes: list[Node]) -> bool:
    """Compute a norm times a constant."""
    norm, scale = nodes
    _normalize(lowering, norm, scale.output, float(scale.attrs["factor"]))
    return True


def _norm(lowering: Lowering, node: Node) -> None:
    _normalize(lowering, node, node.output)


def _normalize(lowering: Lowering, node: Node, result: Tensor, scale: float = 1.0) -> None:
    x, weight, bias = node.inputs["x"], node.inputs.get("weight"), node.inputs.get("bias")
    width = int(x.shape[-1])
    most = min(1024, lowering.device.description.max_threads_per_threadgroup)
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
            "bias_rows": _rows(bias, width),
        },
        constants=[local_size(width, most), weight is not None, bias is not None],
        grid=lowering.grid(lowering.rows(x) * inner(x)),
    )


def _rows(weight: Tensor | None, width: int) -> int:
    """Return the rows of a weight that differs from head to head."""
    return 1 if weight is None else math.prod(fixed(weight.shape)) // width


def _whole_rows(node: Node, limits: Limits) -> bool:
    x, *weights = node.operands()
    return all(weight.shape[-1] == x.shape[-1] for weight in weights)


RULES = {"rms_norm": Rule(_norm, _whole_rows), "layer_norm": Rule(_norm, _whole_rows)}
