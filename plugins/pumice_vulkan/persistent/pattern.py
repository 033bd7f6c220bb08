"""The pattern of a segment that shaders/persistent.comp computes: a llama from its embedding to its logits.

Feed-forward blocks may be experts with or without shared ones, and have SiLU or GELU. Queries, keys and values may
have biases, queries and keys norms per head; embeddings, results of blocks and logits may be multiplied by a constant.
Results of attention and of blocks may have norms before they are added; scores and logits soft caps, layers windows.
Heads may have sinks, and attention's output, routers and experts biases.
``Decoder.is_plain`` says if a model has none of what only the shader for any shape computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pumice.plugin import GGMLType, Tensor, Weight, fixed
from pumice.plugin.unstable import KVState, Node, Segment
from pumice_vulkan.fuse import DEFERRED, GROUP

T = TypeVar("T")

FOUR_BITS = ("q4_0", "q4_k")
SIX_BITS = "q6_k"


@dataclass(frozen=True)
class Routing:
    """The choice of a layer's experts.

    Attributes:
        router: matrix of the experts' logits, float32.
        used: experts of a token.
        gate: how shares follow from logits: "softmax_of_chosen", "softmax" or "sigmoid".
        normalizes: True if the shares of a token's experts add up to ``scale``.
        scale: factor of the shares.
        bias: what is added to probabilities to choose experts.
        logit_bias: what is added to logits.
    """

    router: Weight
    used: int
    gate: str
    normalizes: bool
    scale: float = 1.0
    bias: Weight | None = None
    logit_bias: Weight | None = None

    @property
    def is_plain(self) -> bool:
        is_biased = self.bias is not None or self.logit_bias is not None
        return self.gate == "softmax_of_chosen" and self.scale == 1.0 and not is_biased


@dataclass(frozen=True)
class Block:
    """A feed-forward block: its norm, its matrices of gate, up and down, and what else it has.

    With ``routing``, ``matrices`` are stacks of experts; ``shared`` are gate, up and down of experts that every token
    uses, and the sigmoid of the product with ``shared_gate`` multiplies their result. ``activation`` is "silu", "gelu"
    or "clamped", that of gpt-oss; ``post_norm`` is the norm of the result, ``expert_biases`` are of the matrices.
    """

    norm: Node
    matrices: tuple[Weight, ...]
    routing: Routing | None = None
    shared: tuple[Weight, ...] = ()
    shared_gate: Weight | None = None
    activation: str = "silu"
    post_norm: Node | None = None
    expert_biases: tuple[Weight, ...] = ()


@dataclass(frozen=True)
class Layer:
    """A layer; ``matrices`` are those of queries, keys, values, output, gate, up and down.

    ``scale`` multiplies the results of attention and of the block; ``post_norm`` is the norm of attention's result.
    ``sinks`` are logits of heads beside their scores, ``output_bias`` is that of attention's output.
    """

    norm: Node
    attention_matrices: tuple[Weight, ...]
    rope: Node
    attention: Node
    block: Block
    head_norms: tuple[Node, ...] = ()  # of queries and keys
    biases: tuple[Weight, ...] = ()  # of queries, keys and values
    scale: float = 1.0
    post_norm: Node | None = None
    sinks: Weight | None = None
    output_bias: Weight | None = None

    @property
    def matrices(self) -> tuple[Weight, ...]:
        return (*self.attention_matrices, *self.block.matrices)

    @property
    def norms(self) -> tuple[Weight, Weight]:
        return self.norm.weight("weight"), self.block.norm.weight("weight")

    @property
    def eps(self) -> tuple[float, ...]:
        return tuple(node.attrs["eps"] for node in (self.norm, self.block.norm, *self.head_norms, *self.post_norms))

    @property
    def post_norms(self) -> list[Node]:
        """The norms of the results of attention and of the block."""
        return [node for node in (self.post_norm, self.block.post_norm) if node]

    @property
    def window(self) -> int:
        """The number of newest positions that the layer attends to; 0: all."""
        return int(self.attention.attrs["window"])

    @property
    def soft_cap(self) -> float:
        """The soft cap of scores; 0: none."""
        return float(self.attention.attrs["softcap"])

    @property
    def router(self) -> Weight | None:
        return self.block.routing.router if self.block.routing else None

    @property
    def used(self) -> int:
        return self.block.routing.used if self.block.routing else 0

    @property
    def state(self) -> KVState:
        return self.attention.state_of(KVState)

    @property
    def is_plain(self) -> bool:
        has_plain_routing = self.block.routing is None or self.block.routing.is_plain
        has_biases = self.biases or self.output_bias or self.block.expert_biases
        has_extras = self.block.shared or self.post_norms or self.window or self.soft_cap or self.sinks
        is_scaled = self.scale != 1.0 or self.block.activation != "silu"
        return has_plain_routing and not has_biases and not has_extras and not is_scaled


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
    logit_scale: float = 1.0
    logit_cap: float = 0.0  # soft cap of the scaled logits; 0: none

    @property
    def windowed(self) -> Layer | None:
        """The first layer with a window."""
        return next((layer for layer in self.layers if layer.window), None)

    @property
    def is_plain(self) -> bool:
        """True if the shaders of families compute it: no biases, no scales, no shared experts, layers of one kind."""
        kinds = {layer.router is None for layer in self.layers}
        has_plain_logits = self.logit_scale == 1.0 and not self.logit_cap
        return len(kinds) == 1 and has_plain_logits and all(layer.is_plain for layer in self.layers)


class _Mismatch(Exception):
    """A node that the shader does not compute."""


def find_decoder(segment: Segment) -> Decoder | None:
    """Return the decoder of a fused segment; None if it has another form."""
    if len(segment.outputs) != 1 or not segment.gives_logits:
        return None
    try:
        return _Matcher(segment).decoder()
    except _Mismatch:
        return None


@dataclass
class _Matcher:
    """A walk from the logits to the embedding, along the nodes that compute each operand."""

    segment: Segment
    producers: dict[Tensor, Node] = field(default_factory=dict)
    matched: set[Tensor] = field(default_factory=set)  # results of nodes that belong to the pattern

    def __post_init__(self) -> None:
        self.producers = {node.output: node for node in _members(self.segment.nodes)}

    def decoder(self) -> Decoder:
        logits = self.segment.outputs[0]
        uncapped, logit_cap = self.uncapped(logits)
        output, logit_scale = self.scaled(uncapped, "linear")
        if logit_cap:
            logit_scale *= logit_cap  # the graph divides by the cap
        norm = self.take(output.inputs["x"], "rms_norm")
        rows = self.take(norm.inputs["x"], "get_rows")
        if rows.inputs["ids"].name != "output_ids":
            raise _Mismatch
        layers, x = [], rows.inputs["x"]
        while self.op(x) == "add":
            layer, x = self.layer(x)
            layers.append(layer)
        if not layers:
            raise _Mismatch
        embedding, _ = self.scaled(x, "embedding")
        if self.matched != set(self.producers):
            raise _Mismatch
        before = [node for node in self.segment.nodes if node.output in (embedding.output, x)]
        if not before or before[-1].output is not x:  # a group computes it
            raise _Mismatch
        norm_weight, eps = norm.weight("weight"), norm.attrs["eps"]
        return Decoder(before, x, layers[::-1], norm_weight, eps, _matrix(output), logits, logit_scale, logit_cap)

    def op(self, tensor: Tensor) -> str:
        node = self.producers.get(tensor)
        return node.op if node else ""

    def take(self, tensor: Tensor, op: str) -> Node:
        """Return the node that computes a tensor, which must be an ``op``."""
        if self.op(tensor) != op:
            raise _Mismatch
        self.matched.add(tensor)
        return self.producers[tensor]

    def scaled(self, tensor: Tensor, op: str) -> tuple[Node, float]:
        """Return an ``op`` whose result may be multiplied by a constant, and the constant."""
        if self.op(tensor) != "scale":
            return self.take(tensor, op), 1.0
        scale = self.take(tensor, "scale")
        if scale.attrs["bias"] != 0.0:
            raise _Mismatch
        return self.take(scale.inputs["x"], op), scale.attrs["factor"]

    def uncapped(self, logits: Tensor) -> tuple[Tensor, float]:
        """Return what a soft cap limits, and the cap: logits are its product with a hyperbolic tangent."""
        scale = self.producers.get(logits)
        if scale is None or scale.op != "scale" or self.op(scale.inputs["x"]) != "tanh":
            return logits, 0.0
        tanh, cap = self.scaled(logits, "tanh")
        return tanh.inputs["x"], cap

    def normed(self, result: Tensor) -> tuple[Node | None, Tensor]:
        """Return the norm that computes a result, and what it reads; None for a result without a norm."""
        if self.op(result) != "rms_norm":
            return None, result
        norm = self.take(result, "rms_norm")
        return norm, norm.inputs["x"]

    def layer(self, result: Tensor) -> tuple[Layer, Tensor]:
        """Return the layer that computes ``result``, and what it starts from."""
        (block, scale), added = self.residual(result, self.block)
        layer, x = self.residual(added, self.attention)
        if scale != layer.scale:
            raise _Mismatch
        return replace(layer, block=block), x

    def residual(self, result: Tensor, match: Callable[[Tensor], tuple[T, Tensor]]) -> tuple[T, Tensor]:
        """Return the part of a layer that is added to what it starts from, and that.

        ``match`` returns the part that computes a tensor, and what its norm reads.
        """
        add = self.take(result, "add")
        operands = add.operands()
        for part, x in (operands, operands[::-1]):
            matched = set(self.matched)
            try:
                term, source = match(part)
            except _Mismatch:
                self.matched = matched
                continue
            if source is x and part is not x:
                return term, x
            self.matched = matched
        raise _Mismatch

    def attention(self, result: Tensor) -> tuple[Layer, Tensor]:
        post_norm, unnormed = self.normed(result)
        o, scale = self.scaled(unnormed, "linear")
        attention = self.take(o.inputs["x"], "attention")
        rope_q, rope_k = (self.take(attention.inputs[name], "rope") for name in ("q", "k"))
        if not _is_plain(rope_q, rope_k, attention):
            raise _Mismatch
        head_norms, products = [], []
        for rope in (rope_q, rope_k):
            x = rope.inputs["x"]
            if self.op(x) == "rms_norm":
                head_norms.append(self.take(x, "rms_norm"))
                if head_norms[-1].weight("weight").shape != rope.output.shape[-1:]:  # of all heads together
                    raise _Mismatch
                x = head_norms[-1].inputs["x"]
            products.append(self.take(x, "linear"))
        products.append(self.take(attention.inputs["v"], "linear"))
        norm = self.take(products[0].inputs["x"], "rms_norm")
        biases = [node.weight("bias") for node in products if "bias" in node.inputs]
        if len(biases) not in (0, 3) or len(head_norms) not in (0, 2):
            raise _Mismatch
        if len({node.output for node in products}) != 3 or any(n.inputs["x"] is not norm.output for n in products):
            raise _Mismatch
        matrices = (*(node.weight("weight") for node in products), o.weight("weight"))
        layer = Layer(
            norm,
            matrices,
            rope_q,
            attention,
            Block(norm, ()),
            head_norms=tuple(head_norms),
            biases=tuple(biases),
            scale=scale,
            post_norm=post_norm,
            sinks=_optional(attention, "sinks"),
            output_bias=_optional(o, "bias"),
        )
        return layer, norm.inputs["x"]

    def block(self, result: Tensor) -> tuple[tuple[Block, float], Tensor]:
        """Return a feed-forward block with the factor of its result, and what its norm reads."""
        scale = 1.0
        post_norm, result = self.normed(result)
        if self.op(result) == "scale":
            of = self.op(self.producers[result].inputs["x"])
            node, scale = self.scaled(result, of)
            result = node.output
        if self.op(result) == "linear":
            block = self.gated(result)
        elif self.op(result) == "expert_sum":
            block = self.experts(result)
        else:
            block = self.experts_and_shared(result)
        return (replace(block, post_norm=post_norm), scale), block.norm.inputs["x"]

    def gated(self, result: Tensor) -> Block:
        """Return a dense block."""
        down = self.take(result, "linear")
        joined, activation = self.activated(down.inputs["x"])
        gate, up = (self.take(tensor, "linear") for tensor in joined.operands())
        norm = self.take(gate.inputs["x"], "rms_norm")
        if gate is up or up.inputs["x"] is not norm.output:
            raise _Mismatch
        return Block(norm, (_matrix(gate), _matrix(up), _matrix(down)), activation=activation)

    def activated(self, values: Tensor) -> tuple[Node, str]:
        """Return the node that gates values, and its activation."""
        activation = "gelu" if self.op(values) == "gelu_mul" else "silu"
        return self.take(values, f"{activation}_mul"), activation

    def experts(self, result: Tensor) -> Block:
        total = self.take(result, "expert_sum")
        y, weights = total.operands()
        (down, down_bias), shares = self.of_experts(y), self.take(weights, "expert_weights")
        operands, activation = self.gated_operands(down.inputs["x"])
        (gate, gate_bias), (up, up_bias) = (self.of_experts(tensor) for tensor in operands)
        ids = self.take(down.inputs["ids"], "expert_ids")
        router = self.take(ids.inputs["logits"], "linear")
        norm = self.take(router.inputs["x"], "rms_norm")
        if gate is up or any(node.inputs["ids"] is not ids.output for node in (gate, up, shares)):
            raise _Mismatch
        if any(node.inputs["x"] is not norm.output for node in (gate, up)):
            raise _Mismatch
        if shares.inputs["logits"] is not router.output:
            raise _Mismatch
        matrices = tuple(node.weight("weight") for node in (gate, up, down))
        biases = tuple(bias for bias in (gate_bias, up_bias, down_bias) if bias)
        routing = _routing(router, ids, shares)
        has_all = {bool(gate_bias), bool(up_bias), bool(down_bias), bool(routing.logit_bias), activation == "clamped"}
        if len(has_all) > 1:  # the shader has all or none
            raise _Mismatch
        return Block(norm, matrices, routing, activation=activation, expert_biases=biases)

    def of_experts(self, result: Tensor) -> tuple[Node, Weight | None]:
        """Return a product with the experts' matrices, and the biases that are added to it."""
        if self.op(result) != "add":
            return self.take(result, "mul_mat_id"), None
        add = self.take(result, "add")
        product, rows = sorted(add.operands(), key=lambda tensor: self.op(tensor) != "mul_mat_id")
        node, bias = self.take(product, "mul_mat_id"), self.take(rows, "embedding")
        if bias.inputs["ids"] is not node.inputs["ids"] or bias.weight("weight").type != GGMLType.F32:
            raise _Mismatch
        return node, bias.weight("weight")

    def gated_operands(self, values: Tensor) -> tuple[Sequence[Tensor], str]:
        """Return what is gated and by what, gate and up, and the activation."""
        if self.op(values) == "mul":
            return self.clamped(values), "clamped"
        joined, activation = self.activated(values)
        return joined.operands(), activation

    def clamped(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return gate and up of gpt-oss' activation: gate at most 7, times its sigmoid, up between -7 and 7, plus 1."""
        opened, up = self.take(values, "mul").operands()
        gate, sigmoid = self.take(opened, "mul").operands()
        slope = self.take(self.take(sigmoid, "sigmoid").inputs["x"], "scale")
        shift, lower = self.take(up, "scale"), self.take(gate, "clamp")
        both = self.take(shift.inputs["x"], "clamp")
        facts = [*_line(slope), *_line(shift), *_bounds(lower), *_bounds(both)]
        if slope.inputs["x"] is not gate or facts != [1.702, 0.0, 1.0, 1.0, -math.inf, 7.0, -7.0, 7.0]:
            raise _Mismatch
        return lower.inputs["x"], both.inputs["x"]

    def experts_and_shared(self, result: Tensor) -> Block:
        added = self.take(result, "add")
        both = sorted(added.operands(), key=lambda tensor: self.op(tensor) != "expert_sum")
        block, shared, shared_gate = self.experts(both[0]), both[1], None
        if self.op(shared) == "mul":
            mul = self.take(shared, "mul")
            shared, opened = sorted(mul.operands(), key=lambda tensor: self.op(tensor) == "sigmoid")
            shared_gate = self.gate_of_shared(opened, block.norm.output)
        gated = self.gated(shared)
        if gated.norm is not block.norm or gated.activation != block.activation:
            raise _Mismatch
        return replace(block, shared=gated.matrices, shared_gate=shared_gate)

    def gate_of_shared(self, opened: Tensor, x: Tensor) -> Weight:
        """Return the weights whose product with ``x`` opens the shared experts."""
        sum_ = self.take(self.take(opened, "sigmoid").inputs["x"], "sum")
        product = self.take(sum_.inputs["x"], "mul")
        operands = product.operands()
        weights = [tensor for tensor in operands if isinstance(tensor, Weight)]
        if operands[0] is not x or len(weights) != 1 or fixed(weights[0].shape) != fixed(x.shape[-1:]):
            raise _Mismatch
        return weights[0]


def _members(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield all nodes, also those of groups; reshapes keep the values, and operands are what was reshaped."""
    aliases: dict[Tensor, Tensor] = {}
    for node in nodes:
        if node.op == "reshape":
            aliases[node.output] = aliases.get(node.inputs["x"], node.inputs["x"])
        elif node.op != DEFERRED:
            for member in node.attrs["group"].nodes if node.op == GROUP else [node]:
                inputs = {name: aliases.get(tensor, tensor) for name, tensor in member.inputs.items()}
                yield Node(member.op, inputs, member.output, member.attrs, member.layer, member.state)


def _routing(router: Node, ids: Node, shares: Node) -> Routing:
    """Return how experts are chosen, and what they weigh."""
    gate, normalizes = shares.attrs["gate"], shares.attrs["normalize"]
    bias = ids.weight("bias") if "bias" in ids.inputs else None
    if ids.attrs["gate"] != gate or ids.attrs["n_group"] != 1 or (bias and gate != "sigmoid"):
        raise _Mismatch
    if gate == "softmax" and normalizes:
        gate = "softmax_of_chosen"  # the same numbers
    matrix = router.weight("weight")
    if gate not in ("softmax", "softmax_of_chosen", "sigmoid") or matrix.type != GGMLType.F32:
        raise _Mismatch
    logit_bias = _optional(router, "bias")
    return Routing(matrix, ids.attrs["n_used"], gate, normalizes, shares.attrs["scale"], bias, logit_bias)


def _line(scale: Node) -> tuple[float, float]:
    return scale.attrs["factor"], scale.attrs["bias"]


def _bounds(clamp: Node) -> tuple[float, float]:
    return clamp.attrs["low"], clamp.attrs["high"]


def _optional(node: Node, name: str) -> Weight | None:
    return node.weight(name) if name in node.inputs else None


def _is_plain(rope_q: Node, rope_k: Node, attention: Node) -> bool:
    """Return True for causal attention to positions in the cache, of queries and keys that turn alike."""
    attrs = attention.attrs
    unusual = ("v_dim", "chunk", "slopes", "log_sum")
    return (
        isinstance(attention.state, KVState)
        and not attention.state.is_memory
        and attention.state.window == attrs["window"]
        and attrs["causal"]
        and attrs["cache"]
        and not any(attrs[name] for name in unusual)
        and not {"bias", "mask"} & set(attention.inputs)
        and attention.inputs["q"] is rope_q.output
        and attention.inputs["k"] is rope_k.output
        and rope_q.attrs == rope_k.attrs
        and not rope_q.attrs["axes"]
        and all(rope.inputs["positions"].name == "positions" for rope in (rope_q, rope_k))
    )


def _matrix(node: Node) -> Weight:
    """Return the matrix of a product without a bias."""
    if "bias" in node.inputs:
        raise _Mismatch
    return node.weight("weight")
