"""Nodes that turn queries and keys by their positions, which an attention of one token of each sequence does itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from pumice.plugin.unstable import Input, Node, Segment


@dataclass
class Turning:
    """The nodes ``rope`` that attentions compute: all of them, and one of each attention, which are alike."""

    ropes: set[Node] = field(default_factory=set)
    of_attentions: dict[Node, Node] = field(default_factory=dict)


def attentions_that_turn(segment: Segment, attentions: Sequence[Node]) -> Turning:
    """Return the nodes ``rope`` that compute nothing but the queries and keys of one of the attentions."""
    makers = {node.output: node for node in segment.nodes if node.op == "rope"}
    uses = Counter(tensor for node in segment.nodes for tensor in node.inputs.values())
    uses.update(segment.outputs)
    turning = Turning()
    for node in attentions:
        operands = [node.inputs[name] for name in ("q", "k") if name in node.inputs]
        ropes = [makers[tensor] for tensor in operands if tensor in makers and uses[tensor] == 1]
        if len(ropes) == len(operands) > 0 and _are_alike(ropes):
            turning.ropes.update(ropes)
            turning.of_attentions[node] = ropes[0]
    return turning


def _are_alike(nodes: Sequence[Node]) -> bool:
    """Return True if nodes turn by the same angles, which the host computes."""
    first = nodes[0].inputs["positions"]
    is_known = isinstance(first, Input)
    return is_known and all(node.attrs == nodes[0].attrs and node.inputs["positions"] is first for node in nodes)
