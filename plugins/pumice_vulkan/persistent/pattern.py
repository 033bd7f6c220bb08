"""The pattern of a segment that shaders/persistent.comp computes: a llama from its embedding to its logits.

Feed-forward blocks may be experts, and queries and keys normalized per head, as in Qwen 3 with experts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pumice.plugin import GGMLType, KVState, Node, Segment, Tensor, Weight
from pumice_vulkan.fuse import DEFERRED, GROUP

FOUR_BITS = ("q4_0", "q4_k")
SIX_BITS = "q6_k"


@dataclass(frozen=True)
class Layer:
    """A layer's weights; ``matrices`` are those of queries, keys, values, output, gate, up and down.

    With experts, gate, up and down are stacks, ``router`` chooses among them, and ``used`` is how many a token has.
    """

    norms: tuple[Weight, Weight]
    matrices: tuple[Weight, ...]
    rope: Node
    attention: Node
    eps: tuple[float, ...]
    head_norms: tuple[Weight, ...] = ()  # of queries and keys
    router: Weight | None = None
    used: int = 0

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
    norm, output = _ops(units.pop(), "rms_norm", "linear")
    (rows,) = _ops(units.pop(), "get_rows")
    x = embedded = units[0][0].output
    layers = []
    rest = deque(units[1:])
    while rest:
        layer, x = _layer(x, rest)
        layers.append(layer)
    if rows.inputs["x"] is not x or rows.inputs["ids"].name != "output_ids":
        raise _Mismatch
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


def _layer(x: Tensor, units: deque[list[Node]]) -> tuple[Layer, Tensor]:
    """Take a layer that starts from ``x``, and return it and its result."""
    norm, q, k, v = _ops(_next(units), "rms_norm", "linear", "linear", "linear")
    group = _next(units)
    *normed, rope_q, rope_k, attention = _ops(group, *["rms_norm"] * (len(group) - 3), "rope", "rope", "attention")
    if norm.inputs["x"] is not x or not _is_plain(rope_q, rope_k, attention):
        raise _Mismatch
    norm_of = {node.output: node for node in normed}
    heads = [rope_q.inputs["x"], rope_k.inputs["x"]]
    head_norms = [norm_of[tensor] for tensor in heads if tensor in norm_of]
    if len(head_norms) != len(normed) or len(normed) not in (0, 2):
        raise _Mismatch
    products = [norm_of[tensor].inputs["x"] if tensor in norm_of else tensor for tensor in heads]
    product_of = {node.output: node for node in (q, k, v)}
    if not product_of.keys() >= {*products, attention.inputs["v"]}:
        raise _Mismatch
    matrices = [_matrix(product_of[tensor], norm.output) for tensor in (*products, attention.inputs["v"])]
    o, added = _ops(_next(units), "linear", "add")
    matrices.append(_matrix(o, attention.output))
    _check_sum(added, x, o.output)
    if units and [node.op for node in units[0]] == ["rms_norm"]:
        block = _experts(added.output, units)
    else:
        block = _dense(added.output, units)
    eps = (norm.attrs["eps"], block.norm.attrs["eps"], *(node.attrs["eps"] for node in head_norms))
    layer = Layer(
        (_norm(norm), _norm(block.norm)),
        (*matrices, *block.matrices),
        rope_q,
        attention,
        eps,
        tuple(map(_norm, head_norms)),
        block.router,
        block.used,
    )
    return layer, block.result


@dataclass(frozen=True)
class _Block:
    """A feed-forward block with its norm: matrices of gate, up and down, and its sum with ``x``."""

    norm: Node
    matrices: tuple[Weight, ...]
    result: Tensor
    router: Weight | None = None
    used: int = 0


def _dense(x: Tensor, units: deque[list[Node]]) -> _Block:
    norm, gate, up, gated = _ops(_next(units), "rms_norm", "linear", "linear", "silu_mul")
    if norm.inputs["x"] is not x or gated.operands() != [gate.output, up.output]:
        raise _Mismatch
    down, result = _ops(_next(units), "linear", "add")
    _check_sum(result, x, down.output)
    matrices = (*(_matrix(node, norm.output) for node in (gate, up)), _matrix(down, gated.output))
    return _Block(norm, matrices, result.output)


def _experts(x: Tensor, units: deque[list[Node]]) -> _Block:
    """Match experts whose shares are the softmax of the chosen ones' logits."""
    (norm,) = _ops(_next(units), "rms_norm")
    (router,) = _ops(_next(units), "linear")
    ids, shares = _ops(_next(units), "expert_ids", "expert_weights")
    gate, up, gated = _ops(_next(units), "mul_mat_id", "mul_mat_id", "silu_mul")
    (down,) = _ops(_next(units), "mul_mat_id")
    total, result = _ops(_next(units), "expert_sum", "add")
    if norm.inputs["x"] is not x or ids.inputs["logits"] is not router.output or not _are_shares(ids, shares):
        raise _Mismatch
    if any(node.inputs["ids"] is not ids.output for node in (gate, up, down, shares)):
        raise _Mismatch
    if gated.operands() != [gate.output, up.output] or total.operands() != [down.output, shares.output]:
        raise _Mismatch
    _check_sum(result, x, total.output)
    weight = _matrix(router, norm.output)
    if weight.type != GGMLType.F32:
        raise _Mismatch
    matrices = (*(_matrix(node, norm.output) for node in (gate, up)), _matrix(down, gated.output))
    return _Block(norm, matrices, result.output, weight, ids.attrs["n_used"])


def _are_shares(ids: Node, shares: Node) -> bool:
    """Return True if shares are the softmax of the chosen logits, which are the highest."""
    normal = shares.attrs["normalize"] or shares.attrs["gate"] == "softmax_of_chosen"
    gates = {ids.attrs["gate"], shares.attrs["gate"]}
    return (
        len(gates) == 1
        and gates <= {"softmax", "softmax_of_chosen"}
        and normal
        and shares.attrs["scale"] == 1.0
        and ids.attrs["n_group"] == 1
        and "bias" not in ids.inputs
    )


def _next(units: deque[list[Node]]) -> list[Node]:
    if not units:
        raise _Mismatch
    return units.popleft()


def _ops(nodes: Sequence[Node], *ops: str) -> Sequence[Node]:
    if tuple(node.op for node in nodes) != ops:
        raise _Mismatch
    return nodes


def _is_plain(rope_q: Node, rope_k: Node, attention: Node) -> bool:
    """Return True for causal attention to all positions in the cache, of queries and keys that turn alike."""
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
        and attention.inputs["q"] is rope_q.output
        and attention.inputs["k"] is rope_k.output
        and rope_q.attrs == rope_k.attrs
        and not rope_q.attrs["axes"]
        and all(rope.inputs["positions"].name == "positions" for rope in (rope_q, rope_k))
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
