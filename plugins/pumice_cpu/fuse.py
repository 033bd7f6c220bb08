"""Operations that one kernel computes together, where that saves a pass over memory."""

from __future__ import annotations

import dataclasses
from collections import Counter

from pumice.plugin import Node, Segment, Tensor

#: Functions whose result, multiplied by another tensor, is never written.
GATES = ("silu", "gelu")


def fuse(segment: Segment) -> Segment:
    """``silu(x) * y`` becomes ``silu_mul(x, y)`` where nothing else reads ``silu(x)``; ``gelu`` likewise."""
    uses = Counter(tensor for node in segment.nodes for tensor in node.operands())
    uses.update(segment.outputs)
    gates = {node.output: node for node in segment.nodes if node.op in GATES and uses[node.output] == 1}
    nodes, gone = [], set()
    for node in segment.nodes:
        gate = _gate(node, gates)
        if gate is not None:
            gone.add(gate.output)
            node = _gated(node, gate)
        nodes.append(node)
    return dataclasses.replace(segment, nodes=[node for node in nodes if node.output not in gone])


def _gate(node: Node, gates: dict[Tensor, Node]) -> Node | None:
    """The function that a product multiplies by something of the same shape."""
    if node.op != "mul":
        return None
    x, y = node.operands()
    return gates.get(x, gates.get(y)) if x.shape == y.shape else None


def _gated(node: Node, gate: Node) -> Node:
    x, y = node.operands()
    other = y if x is gate.output else x
    return Node(f"{gate.op}_mul", (gate.inputs[0], other), node.output, {}, node.layer)
