"""The pattern of a segment that shaders/persistent.comp computes: a llama from its embedding to its logits.

Feed-forward blocks may be experts, and have SiLU or GELU. Queries, keys and values may have biases, queries and keys
norms per head; embeddings and logits may be multiplied by a constant, and residuals.py takes that of blocks' results
away. Results of attention and of blocks may have norms before they are added; scores and logits soft caps, layers
windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pumice.plugin import GGMLType, Tensor, Weight, fixed
from pumice.plugin.unstable import KVState, Node, Segment
from pumice_vulkan.fuse import DEFERRED, GROUP

T = TypeVar("T")

MATRICES = ("q", "k", "v", "o", "gate", "up", "down")  # names of a layer's matrices, in their order


@dataclass(frozen=True)
class Block:
    """A feed-forward block: its norm, and its matrices of gate, up and down, with ``router`` stacks of experts.

    ``used`` are the experts of a token; their shares are the softmax of their logits. ``activation`` is "silu" or
    "gelu"; ``post_norm`` is the norm of the result.
    """

    norm: Node
    matrices: tuple[Weight, ...]
    router: Weight | None = None
    used: int = 0
    activation: str = "silu"
    post_norm: Node | None = None


@dataclass(frozen=True)
class Layer:
    """A layer; ``matrices`` are those of queries, keys, values, output, gate, up and down.

    ``post_norm`` is the norm of attention's result.
    """

    norm: Node
    attention_matrices: tuple[Weight, ...]
    rope: Node
    attention: Node
    block: Block
    head_norms: tuple[Node, ...] = ()  # of queries and keys
    biases: tuple[Weight, ...] = ()  # of queries, keys and values
    post_norm: Node | None = None

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
    def state(self) -> KVState:
        return self.attention.state_of(KVState)

    @property
    def form(self) -> object:
        """What equals that of another layer if the layers differ in their weights and windows alone, but for types."""
        rope, router = self.rope.attrs, self.block.router
        shapes = [weight.shape for weight in self.matrices], None if router is None else router.shape
        sizes = (self.attention.inputs["q"].shape, self.state.k_dim, self.state.v_dim, self.block.used)
        extras = (len(self.head_norms), len(self.biases), len(self.post_norms), self.block.activation, self.soft_cap)
        scales = (self.attention.attrs["scale"], len(rope["freqs"]), rope["neox"], rope["magnitude"])
        return shapes, sizes, extras, scales


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
    def lasting(self) -> Layer:
        """The first layer that attends to all positions, or the first one if there is none."""
        return next((layer for layer in self.layers if not layer.window), self.layers[0])

    @property
    def windowed(self) -> Layer | None:
        """The first layer with a window."""
        return next((layer for layer in self.layers if layer.window), None)

    @property
    def sizes(self) -> dict[str, Any]:
        """Return the fields of a shape (division.py) that the model alone decides, but for types."""
        first, windowed = self.layers[0], self.windowed
        (n_query, width), (n_key, _) = (fixed(weight.shape) for weight in first.matrices[:2])
        dim = int(first.attention.inputs["q"].shape[-1])
        *experts, ffn, _ = fixed(first.block.matrices[0].shape)
        return {
            "layers": len(self.layers),
            "width": width,
            "heads": n_query // dim,
            "kv_heads": n_key // dim,
            "dim": dim,
            "ffn": ffn * max(first.block.used, 1),
            "vocabulary": fixed(self.output.shape)[0],
            "experts": sum(experts),
            "used": first.block.used,
            "head_norms": bool(first.head_norms),
            "biases": bool(first.biases),
            "gelu": first.block.activation == "gelu",
            "post_norms": bool(first.post_norms),
            "soft_cap": first.soft_cap,
            "logit_cap": self.logit_cap,
            "window": windowed.window if windowed else 0,
        }

    @property
    def is_regular(self) -> bool:
        """True if all layers are alike, with one epsilon, keys as wide as values, and one kind of windows."""
        first, eps = self.layers[0], {value for layer in self.layers for value in layer.eps} | {self.eps}
        windows = {(layer.window, layer.rope.attrs["freqs"]) for layer in self.layers if layer.window}
        angles = {layer.rope.attrs["freqs"] for layer in self.layers if not layer.window}
        same = all(layer.form == first.form for layer in self.layers) and len(eps) == 1
        return same and len(windows) <= 1 and len(angles) <= 1 and first.state.k_dim == first.state.v_dim


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
        logit_scale *= logit_cap or 1.0  # the graph divides by the cap
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
        block, added = self.residual(result, self.block)
        layer, x = self.residual(added, self.attention)
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
        post_norm, result = self.normed(result)
        o = self.take(result, "linear")
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
        matrices = (*(node.weight("weight") for node in products), _matrix(o))
        layer = Layer(
            norm,
            matrices,
            rope_q,
            attention,
            Block(norm, ()),
            head_norms=tuple(head_norms),
            biases=tuple(biases),
            post_norm=post_norm,
        )
        return layer, norm.inputs["x"]

    def block(self, result: Tensor) -> tuple[Block, Tensor]:
        """Return a feed-forward block, and what its norm reads."""
        post_norm, result = self.normed(result)
        block = self.gated(result) if self.op(result) == "linear" else self.experts(result)
        return replace(block, post_norm=post_norm), block.norm.inputs["x"]

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
        down, shares = self.take(y, "mul_mat_id"), self.take(weights, "expert_weights")
        joined, activation = self.activated(down.inputs["x"])
        gate, up = (self.take(tensor, "mul_mat_id") for tensor in joined.operands())
        ids = self.take(down.inputs["ids"], "expert_ids")
        router = self.take(ids.inputs["logits"], "linear")
        norm = self.take(router.inputs["x"], "rms_norm")
        if gate is up or any(node.inputs["ids"] is not ids.output for node in (gate, up, shares)):
            raise _Mismatch
        if any(node.inputs["x"] is not norm.output for node in (gate, up)):
            raise _Mismatch
        if shares.inputs["logits"] is not router.output or not _routes_by_softmax(ids, shares):
            raise _Mismatch
        matrix = _matrix(router)
        if matrix.type != GGMLType.F32:
            raise _Mismatch
        matrices = tuple(node.weight("weight") for node in (gate, up, down))
        return Block(norm, matrices, matrix, ids.attrs["n_used"], activation)


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


def _routes_by_softmax(ids: Node, shares: Node) -> bool:
    """Return True if shares are the softmax of the chosen experts' logits, which alone decide the choice."""
    gate, normalizes = shares.attrs["gate"], shares.attrs["normalize"]
    of_chosen = gate == "softmax_of_chosen" or (gate == "softmax" and normalizes)  # the same numbers
    is_plain = ids.attrs["n_group"] == 1 and shares.attrs["scale"] == 1.0 and "bias" not in ids.inputs
    return of_chosen and is_plain and ids.attrs["gate"] == gate


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
        and not {"bias", "mask", "sinks"} & set(attention.inputs)
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
