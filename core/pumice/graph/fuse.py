"""Fuse nodes that form a composite operation into one node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pumice.graph.ops import OPERATIONS
from pumice.graph.tensor import Node, Tensor


def join_gates(nodes: Sequence[Node], outputs: Mapping[str, Tensor]) -> list[Node]:
    """Fuse ``silu(x) * y`` to ``silu_mul(x, y)`` if nothing else reads ``silu(x)``; ``gelu`` likewise."""
    uses = Counter(tensor for node in nodes for tensor in node.operands())
    uses.update(outputs.values())
    gates = {node.output: node for node in nodes if f"{node.op}_mul" in OPERATIONS and uses[node.output] == 1}
    joined, gone = [], set()
    for node in nodes:
        gate = _gate(node, gates)
        if gate is not None:
            gone.add(gate)
            node = _gated(gate, node)
        joined.append(node)
    return [node for node in joined if node not in gone]


def _gate(node: Node, gates: Mapping[Tensor, Node]) -> Node | None:
    """Return the activation that a product multiplies by a tensor of the same shape, if any."""
    if node.op != "mul" or len({tensor.shape for tensor in node.operands()}) > 1:
        return None
    return next((gates[tensor] for tensor in node.operands() if tensor in gates), None)


def _gated(gate: Node, product: Node) -> Node:
    (y,) = [tensor for tensor in product.operands() if tensor is not gate.output]
    inputs = {"x": gate.inputs["x"], "y": y}
    return Node(f"{gate.op}_mul", inputs, product.output, {}, product.layer, expansion=(gate, product))
