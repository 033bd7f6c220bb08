"""Blocks that models share. Each reads its tensors by name and adds its operations to the graph.

Tensor names are those of the GGUF specification; ``blk`` is the prefix of a layer, ``blk.3.``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack

from pumice.plugin import GraphBuilder, ModelError, Tensor, Weight, fixed
from pumice.plugin.nn.hyper import Heads
from pumice.plugin.nn.rope import Rope
from pumice.plugin.unstable import KVState

Activation = Callable[[Tensor], Tensor]
Join = Callable[[Tensor, Tensor], Tensor]
"""Joins the results of the gate and up matrices."""
Norm = Callable[[GraphBuilder, Tensor, str], Tensor]


class OperationOptions(TypedDict, total=False):
    """Options of the operation ``attention``, which describes them, but the scale and the size of values."""

    window: int
    softcap: float
    sinks: Weight | None
    causal: bool
    chunk: int
    slopes: tuple[float, ...]
    bias: Weight | None
    mask: Tensor | None
    cache: KVState | bool


class AttendOptions(OperationOptions, total=False):
    """Options of ``attend``."""

    scale: float
    temperature: Tensor | None
    finish: Activation | None


class AttentionOptions(AttendOptions, total=False):
    """Options of ``self_attention``."""

    norm: Norm | None
    late_norm: Norm | None
    clamp: float


def width(x: Tensor) -> int:
    """Return the size of the last axis."""
    return int(x.shape[-1])


# --- linear maps


def linear(g: GraphBuilder, x: Tensor, name: str, n_out: int | None = None) -> Tensor:
    """Multiply ``x`` by ``{name}.weight [n_out, k]`` and its ``.scale``, and add its ``.bias``, if present.

    ``n_out``: the rows that the tensor must have; any number unless given.
    """
    n = int(g.weight(f"{name}.weight").shape[0]) if n_out is None else n_out
    weight = g.weight(f"{name}.weight", (n, width(x)))
    return project(g, x, weight, g.find_weight(f"{name}.bias", (n,)), find_scale(g, name))


def project(g: GraphBuilder, x: Tensor, weight: Weight, bias: Weight | None, scale: Weight | None) -> Tensor:
    if scale is None:
        return g.linear(x, weight, bias)
    y = g.linear(x, weight) * scale
    return y if bias is None else y + bias


def find_scale(g: GraphBuilder, name: str) -> Weight | None:
    """Return the scale of a whole matrix, which NVFP4 weights have; None without one."""
    return g.find_weight(f"{name}.scale", (1,))


def linear_then_scale(g: GraphBuilder, x: Tensor, name: str, n_out: int) -> Tensor:
    """Like ``linear``, but a scale multiplies the bias, too, as in feed-forward blocks."""
    y = g.linear(x, g.weight(f"{name}.weight", (n_out, width(x))), g.find_weight(f"{name}.bias", (n_out,)))
    scale = find_scale(g, name)
    return y if scale is None else y * scale


# --- norms


def rms_norm(g: GraphBuilder, x: Tensor, name: str, eps: float) -> Tensor:
    return g.rms_norm(x, g.weight(f"{name}.weight", (width(x),)), eps)


def layer_norm(g: GraphBuilder, x: Tensor, name: str, eps: float) -> Tensor:
    """Normalize the last axis or, for queries and keys, ``[heads, values]``, by the shape of the weight."""
    return g.layer_norm(x, g.weight(f"{name}.weight"), g.find_weight(f"{name}.bias"), eps)


def norm_all_heads(g: GraphBuilder, x: Tensor, name: str, norm: Norm) -> Tensor:
    """Normalize all heads ``[t, heads, values]`` of a token together."""
    tokens, heads, values = x.shape
    return norm(g, x.reshape(tokens, int(heads) * int(values)), name).reshape(tokens, heads, values)


# --- attention


QKV = ("attn_q", "attn_k", "attn_v")


def qkv(g: GraphBuilder, x: Tensor, blk: str, heads: Heads, wanted: Sequence[str] = QKV) -> list[Tensor]:
    """Return queries ``[t, n_head, k_dim]``, keys ``[t, n_head_kv, k_dim]`` and values ``[t, n_head_kv, v_dim]``.

    The file has either one matrix for all three, ``attn_qkv``, or one for each of the ``wanted``.
    """
    shapes = {
        "attn_q": (heads.n_head, heads.k_dim),
        "attn_k": (heads.n_head_kv, heads.k_dim),
        "attn_v": (heads.n_head_kv, heads.v_dim),
    }
    fused = g.find_weight(f"{blk}attn_qkv.weight", (sum(n * dim for n, dim in shapes.values()), width(x)))
    results = []
    start = 0
    for name, (n, dim) in shapes.items():
        stop = start + n * dim
        if name in wanted:
            y = _fused_part(g, x, blk, fused, name, start, stop) if fused else linear(g, x, blk + name, n * dim)
            results.append(y.reshape(x.shape[0], n, dim))
        start = stop
    return results


def _fused_part(g: GraphBuilder, x: Tensor, blk: str, fused: Weight, name: str, start: int, stop: int) -> Tensor:
    bias = g.find_weight(f"{blk}attn_qkv.bias", fused.shape[:1])  # type: ignore[arg-type]
    part = bias.rows(start, stop) if bias else g.find_weight(f"{blk}{name}.bias", (stop - start,))
    return project(g, x, fused.rows(start, stop), part, find_scale(g, f"{blk}attn_qkv"))


def self_attention(
    g: GraphBuilder,
    x: Tensor,
    blk: str,
    heads: Heads,
    rope: Rope | None,
    *,
    norm: Norm | None = None,
    late_norm: Norm | None = None,
    clamp: float = 0.0,
    **options: Unpack[AttendOptions],
) -> Tensor:
    """Project ``x`` to queries, keys and values, attend, and multiply by the output matrix; options as in ``attend``.

    ``norm`` normalizes queries and keys before ``rope`` rotates them, ``late_norm`` after it. A ``clamp`` above 0
    bounds queries, keys and values.
    """
    q, k, v = qkv(g, x, blk, heads)
    if clamp:
        q, k, v = (g.clamp(y, -clamp, clamp) for y in (q, k, v))
    if norm:
        q, k = norm(g, q, blk + "attn_q_norm"), norm(g, k, blk + "attn_k_norm")
    if rope:
        q, k = rope(g, q), rope(g, k)
    if late_norm:
        q, k = late_norm(g, q, blk + "attn_q_norm"), late_norm(g, k, blk + "attn_k_norm")
    return attend(g, blk, q, k, v, width(x), **options)


def attend(
    g: GraphBuilder,
    blk: str,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    n_out: int,
    *,
    scale: float = 0.0,
    temperature: Tensor | None = None,
    finish: Activation | None = None,
    **options: Unpack[OperationOptions],
) -> Tensor:
    """Attend, and multiply by the output matrix: ``[t, n_out]``; further options are those of ``attention``.

    A ``scale`` of 0 means ``1 / sqrt(k_dim)``; ``temperature [t, 1, 1]`` multiplies the queries; ``finish`` changes
    the results of all heads, ``[t, n_head * v_dim]``, before the matrix.
    """
    scale = scale or width(q) ** -0.5
    y = g.attention(q if temperature is None else q * temperature, k, v, scale=scale, **options)
    y = y.reshape(y.shape[0], int(y.shape[1]) * width(y))
    return linear(g, finish(y) if finish else y, blk + "attn_output", n_out)


def attention_sinks(g: GraphBuilder, blk: str, n_head: int, *, may_lack: bool = False) -> Weight | None:
    """Return the sinks of a layer's heads ``[n_head]``, one of the options of ``attention``.

    ``may_lack``: None if the file has none.
    """
    name, shape = f"{blk}attn_sinks.weight", (n_head,)
    return g.find_weight(name, shape) if may_lack else g.weight(name, shape)


def attention_gate(g: GraphBuilder, x: Tensor, blk: str, heads: Heads, activation: Activation) -> Activation:
    """Return a ``finish`` for ``attend`` that multiplies heads by ``activation(attn_gate(x))``.

    The file has one factor per head, or one per value of all heads.
    """
    n_values = heads.n_head * heads.v_dim
    name = f"{blk}attn_gate"
    if math.prod(fixed(g.weight(f"{name}.weight").shape)) == n_values * width(x):
        factors = activation(linear(g, x, name, n_values))
        return lambda y: y * factors
    factors = activation(linear(g, x, name, heads.n_head)).reshape(x.shape[0], heads.n_head, 1)
    return lambda y: (y.reshape(x.shape[0], heads.n_head, heads.v_dim) * factors).reshape(x.shape[0], n_values)


def temperature(g: GraphBuilder, beta: float, length: int, offset: int = 0) -> Tensor | None:
    """Return factors ``[t, 1, 1]`` that sharpen attention far from the start; None if all of them are 1."""
    if beta == 0 or g.n_ctx + offset <= length:
        return None
    return g.position_scale(g.positions, length, beta, offset).reshape(g.positions.shape[0], 1, 1)


# --- feed-forward


def feed_forward(g: GraphBuilder, x: Tensor, blk: str, n_ff: int, activation: Activation) -> Tensor:
    """``down(activation(up(x)))``."""
    y = activation(linear_then_scale(g, x, f"{blk}ffn_up", n_ff))
    return linear_then_scale(g, y, f"{blk}ffn_down", width(x))


def fused_feed_forward(
    g: GraphBuilder, x: Tensor, blk: str, n_ff: int, activation: Activation, *, suffix: str = ""
) -> Tensor:
    """Like ``gated_feed_forward``, with one matrix ``ffn_up`` that has the rows of gate and up."""
    name = f"{blk}ffn_up{suffix}"
    weight, bias = g.weight(f"{name}.weight", (2 * n_ff, width(x))), g.find_weight(f"{name}.bias", (2 * n_ff,))
    gate, up = (
        g.linear(x, weight.rows(start, start + n_ff), bias.rows(start, start + n_ff) if bias else None)
        for start in (0, n_ff)
    )
    return linear_then_scale(g, activation(gate) * up, f"{blk}ffn_down{suffix}", width(x))


def gated_feed_forward(
    g: GraphBuilder,
    x: Tensor,
    blk: str,
    n_ff: int,
    activation: Activation,
    *,
    suffix: str = "",
) -> Tensor:
    """``down(activation(gate(x)) * up(x))`` (Shazeer 2020, arXiv:2002.05202); suffix ``_shexp``: a shared expert."""
    return joined_feed_forward(g, x, blk, n_ff, lambda gate, up: activation(gate) * up, suffix=suffix)


def joined_feed_forward(g: GraphBuilder, x: Tensor, blk: str, n_ff: int, join: Join, *, suffix: str = "") -> Tensor:
    """``down(join(gate(x), up(x)))``."""
    gate = linear_then_scale(g, x, f"{blk}ffn_gate{suffix}", n_ff)
    up = linear_then_scale(g, x, f"{blk}ffn_up{suffix}", n_ff)
    return linear_then_scale(g, join(gate, up), f"{blk}ffn_down{suffix}", width(x))


# --- the two ends


def embedding(g: GraphBuilder, n_embd: int, name: str = "token_embd") -> Tensor:
    """Return the embeddings of the tokens ``[t, n_embd]``."""
    return g.embedding(g.weight(f"{name}.weight", (n_vocab(g), n_embd)), g.tokens)


def learned_positions(g: GraphBuilder, n_positions: int, n_embd: int) -> Tensor:
    """Return the embeddings of the positions ``[t, n_embd]``, from a table with ``n_positions`` rows."""
    table = g.weight("position_embd.weight", (n_positions, n_embd))
    if g.n_ctx > n_positions:
        raise ModelError(f"the model has positions for {n_positions} tokens only; use n_ctx={n_positions} or less")
    return g.embedding(table, g.positions)


def softcap(g: GraphBuilder, x: Tensor, cap: float) -> Tensor:
    """Return ``cap * tanh(x / cap)``, which stays within ``cap``; a ``cap`` of 0 returns ``x``."""
    return g.tanh(x * (1 / cap)) * cap if cap else x


def output_head(g: GraphBuilder, x: Tensor) -> Tensor:
    """Return logits ``[n_outputs, n_vocab]``; a file without ``output.weight`` reuses the token embeddings.

    ``x`` becomes the output ``hidden``, from which embeddings are computed.
    """
    g.output("hidden", x)
    shape = (n_vocab(g), width(x))
    weight = g.find_weight("output.weight", shape) or g.weight("token_embd.weight", shape)
    return project(g, x, weight, g.find_weight("output.bias", shape[:1]), find_scale(g, "output"))


def n_vocab(g: GraphBuilder) -> int:
    """Return the size of the vocabulary: the rows of the embeddings."""
    weight = g.find_weight("token_embd.weight") or g.find_weight("output.weight")
    return int((weight or g.weight("token_embd.weight")).shape[0])
