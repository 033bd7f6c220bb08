"""Format a graph as text: one line per node, grouped by backend and layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pumice.graph.memory import MemoryPlan
from pumice.graph.ops import OPERATIONS
from pumice.graph.place import Segment
from pumice.graph.shape import format_shape
from pumice.graph.tensor import Node, Tensor, Weight


def format_graph(segments: Sequence[Segment], plans: Sequence[MemoryPlan], n_layer: int) -> str:
    """Return every segment with its backend and arena size, and its nodes with shapes, weights and types."""
    return "\n".join(_lines(segments, plans, n_layer))


def _lines(segments: Sequence[Segment], plans: Sequence[MemoryPlan], n_layer: int) -> Iterator[str]:
    for number, (segment, plan) in enumerate(zip(segments, plans, strict=True)):
        where = f"{segment.backend}, device {segment.device}" if segment.device else segment.backend
        yield f"segment {number} on {where}: {len(segment.nodes)} nodes, {plan.size / 2**20:.1f} MiB arena"
        yield f"  takes {_names(segment.inputs)}; gives {_names(segment.outputs)}"
        layer = None
        for node in segment.nodes:
            if node.layer != layer:
                layer = node.layer
                yield f"  {_layer_title(layer, n_layer)}"
            yield f"    {_format_node(node, plan)}"


def _layer_title(layer: int, n_layer: int) -> str:
    if layer < 0:
        return "input"
    return "output" if layer >= n_layer else f"layer {layer}"


def _names(tensors: Sequence[Tensor]) -> str:
    return ", ".join(tensor.name for tensor in tensors)


def _format_node(node: Node, plan: MemoryPlan) -> str:
    operands = ", ".join(
        [_format_operand(tensor) for tensor in node.operands()] + ([str(node.state)] if node.state else [])
    )
    attrs = "".join(f" {key}={_format_attr(value)}" for key, value in _shown_attributes(node).items())
    result = f"{node.output.name} {format_shape(node.output.shape)}"
    return f"{result} @{plan.offsets[node.output]} = {node.op}({operands}){attrs}"


def _format_operand(tensor: Tensor) -> str:
    if isinstance(tensor, Weight):
        return f"{tensor.name} {tensor.type.name} {format_shape(tensor.shape)}"
    return tensor.name


def _shown_attributes(node: Node) -> dict[str, Any]:
    """Return the attributes that differ from the operation's defaults."""
    defaults = OPERATIONS[node.op].defaults if node.op in OPERATIONS else {}
    return {key: value for key, value in node.attrs.items() if key not in defaults or defaults[key] != value}


def _format_attr(value: object) -> str:
    if isinstance(value, tuple) and len(value) > 4:
        return f"({_format_attr(value[0])}, ... {len(value)} values)"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
