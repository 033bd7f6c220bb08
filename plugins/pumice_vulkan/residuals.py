"""Residual streams of models that multiply the results of blocks by a constant, such as Granite, without it.

``x + s * f(norm(x))`` is ``s * (z + f(norm(z)))`` with z = x / s, as an RMS norm divides by the size of x. So a stream
that begins with embeddings divided by s needs no scale before its sums. The norms' epsilon is divided by s * s.
"""

from __future__ import annotations

from dataclasses import replace

from pumice.plugin import Tensor
from pumice.plugin.unstable import Node, Segment


def unscaled(segment: Segment) -> Segment:
    """Return the segment with a stream of x / s; the segment itself if others than norms and sums read the stream."""
    maker = {node.output: node for node in segment.nodes}
    users: dict[Tensor, list[Node]] = {}
    for node in segment.nodes:
        for tensor in dict.fromkeys(node.operands()):
            users.setdefault(tensor, []).append(node)
    scales = {  # by the sum that adds their results
        node: maker[tensor]
        for node in segment.nodes
        if node.op == "add"
        for tensor in node.operands()
        if _scales(maker.get(tensor)) and users[tensor] == [node] and tensor not in segment.outputs
    }
    factors = {scale.attrs["factor"] for scale in scales.values()}
    if len(factors) != 1 or min(factors) <= 0:
        return segment
    (factor,) = factors
    stream = {tensor for add, scale in scales.items() for tensor in (*add.operands(), add.output)}
    stream -= {scale.output for scale in scales.values()}
    stream |= {node.output for node in segment.nodes if node.op == "get_rows" and node.inputs["x"] in stream}
    begins = {tensor for tensor in stream if (made := maker.get(tensor)) not in scales and not _reads(made, stream)}
    if stream & set(segment.outputs) or [_scales(maker.get(tensor)) for tensor in begins] != [True]:
        return segment
    if not all(user in scales or _reads(user, {tensor}) for tensor in stream for user in users.get(tensor, [])):
        return segment
    nodes = [
        _rewritten(node, scales.get(node), factor, begins, stream)
        for node in segment.nodes
        if node not in scales.values()
    ]
    return replace(segment, nodes=nodes)


def _rewritten(node: Node, scale: Node | None, factor: float, begins: set[Tensor], stream: set[Tensor]) -> Node:
    if scale is not None:
        inner = {name: scale.inputs["x"] if item is scale.output else item for name, item in node.inputs.items()}
        return replace(node, inputs=inner)
    if node.output in begins:
        return replace(node, attrs={**node.attrs, "factor": node.attrs["factor"] / factor})
    if node.op == "rms_norm" and node.inputs["x"] in stream:
        return replace(node, attrs={**node.attrs, "eps": node.attrs["eps"] / factor**2})
    return node


def _scales(node: Node | None) -> bool:
    """Return True for a product with a constant."""
    return node is not None and node.op == "scale" and node.attrs["bias"] == 0.0


def _reads(node: Node | None, stream: set[Tensor]) -> bool:
    """Return True for a norm of the stream, or for some of its rows."""
    return node is not None and node.op in ("rms_norm", "get_rows") and node.inputs["x"] in stream
