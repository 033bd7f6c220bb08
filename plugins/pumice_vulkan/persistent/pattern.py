"""The pattern of a segment that shaders/persistent.comp computes: a llama from its embedding to its logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pumice.plugin import KVState, Node, Segment, Tensor, Weight
from pumice_vulkan.fuse import DEFERRED, GROUP

FOUR_BITS = ("q4_0", "q4_k")
SIX_BITS = "q6_k"


@dataclass(frozen=True)
class Layer:
    """A layer's weights; ``matrices`` are those of queries, keys, values, output, gate, up and down."""

    norms: tuple[Weight, Weight]
    matrices: tuple[Weight, ...]
    rope: Node
    attention: Node
    eps: tuple[float, float]

    @property
    def state(self) -> KVState:
        return self.attention.state_of(KVState)


@dataclass(frozen=True)
class Decoder:
    """A matched segment; ``before`` computes ``x``, the embedding."""

    before: Sequence[Node]
    x: Tensor
    layers: Sequence[Layer]
    norm: Weight
    eps: float
    output: Weight
    logits: Tensor


class _Mismatch(Exception):
    """A node that the shader does not compute."""


def find_decoder(segment: Segment) -> Decoder | None:
    """Return the decoder of a fused segment; None if it has another form."""
    if len(segment.outputs) != 1 or not segment.gives_logits:
        return None
    try:
        return _match(segment)
    except _Mismatch:
        return None


def _match(segment: Segment) -> Decoder:
    units = list(_units(segment.nodes))
    if len(units) < 7 or [node.op for node in units[0]] != ["embedding"]:
        raise _Mismatch
    x = embedded = units[0][0].output
    last = units.pop()
    if [node.op for node in units[-1]] == ["get_rows"]:
        (rows,) = units.pop()
    else:
        raise _Mismatch
    layers = []
    for first in range(1, len(units), 5):
        layer, x = _layer(x, units[first : first + 5])
        layers.append(layer)
    if rows.inputs["x"] is not x or rows.inputs["ids"].name != "output_ids":
        raise _Mismatch
    norm, output = _ops(last, "rms_norm", "linear")
    if norm.inputs["x"] is not rows.output or segment.outputs[0] is not output.output:
        raise _Mismatch
    return Decoder(
        units[0], embedded, layers, _norm(norm), norm.attrs["eps"], _matrix(output, norm.output), output.output
    )


def _units(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """Yield groups and other nodes; reshapes keep the values, and the matcher looks through them."""
    aliases: dict[Tensor, Tensor] = {}
    for node in nodes:
        if node.op == "reshape":
            aliases[node.output] = aliases.get(node.inputs["x"], node.inputs["x"])
        elif node.op != DEFERRED:
            members = node.attrs["group"].nodes if node.op == GROUP else [node]
            yield [_seen_through(member, aliases) for member in members]


def _seen_through(node: Node, aliases: dict[Tensor, Tensor]) -> Node:
    inputs = {name: aliases.get(tensor, tensor) for name, tensor in node.inputs.items()}
    return Node(node.op, inputs, node.output, node.attrs, node.layer, node.state)


def _layer(x: Tensor, units: Sequence[list[Node]]) -> tuple[Layer, Tensor]:
    """Return a layer that starts from ``x``, and its result."""
    if len(units) != 5:
        raise _Mismatch
    norm, q, k, v = _ops(units[0], "rms_norm", "linear", "linear", "linear")
    rope_q, rope_k, attention = _ops(units[1], "rope", "rope", "attention")
    if norm.inputs["x"] is not x or not _is_plain(rope_q, attention):
        raise _Mismatch
    by_output = {node.output: node for node in (q, k, v)}
    try:
        used = [by_output[tensor] for tensor in (rope_q.inputs["x"], rope_k.inputs["x"], attention.inputs["v"])]
    except KeyError:
        raise _Mismatch from None
    matrices = [_matrix(node, norm.output) for node in used]
    o, added = _ops(units[2], "linear", "add")
    matrices.append(_matrix(o, attention.output))
    _check_sum(added, x, o.output)
    norm2, gate, up, gated = _ops(units[3], "rms_norm", "linear", "linear", "silu_mul")
    if norm2.inputs["x"] is not added.output or gated.operands() != [gate.output, up.output]:
        raise _Mismatch
    matrices += [_matrix(node, norm2.output) for node in (gate, up)]
    down, result = _ops(units[4], "linear", "add")
    matrices.append(_matrix(down, gated.output))
    _check_sum(result, added.output, down.output)
    eps = (norm.attrs["eps"], norm2.attrs["eps"])
    return Layer((_norm(norm), _norm(norm2)), tuple(matrices), rope_q, attention, eps), result.output


def _ops(nodes: Sequence[Node], *ops: str) -> Sequence[Node]:
    if tuple(node.op for node in nodes) != ops:
        raise _Mismatch
    return nodes


def _is_plain(rope: Node, attention: Node) -> bool:
    """Return True for causal attention to all positions in the cache, with rotary positions of one axis."""
    attrs = attention.attrs
    unusual = ("window", "softcap", "v_dim", "chunk", "slopes", "log_sum")
    return (
        isinstance(attention.state, KVState)
        and not attention.state.is_memory
        and not attention.state.window
        and attrs["causal"]
        and attrs["cache"]
        and not any(attrs[name] for name in unusual)
        and not {"bias", "mask", "sinks"} & set(attention.inputs)
        and not rope.attrs["axes"]
    )


def _norm(node: Node) -> Weight:
    return node.weight("weight")


def _matrix(node: Node, x: Tensor) -> Weight:
    """Return the matrix of a product of ``x`` without a bias."""
    if node.inputs["x"] is not x or "bias" in node.inputs:
        raise _Mismatch
    return node.weight("weight")


def _check_sum(node: Node, x: Tensor, y: Tensor) -> None:
    if {*node.operands()} != {x, y} or x is y:
        raise _Mismatch
