"""Mixtures of experts: their hyperparameters, the choice of a token's experts, and the mixture of their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pumice.plugin import GraphBuilder, HParams, Tensor, Weight
from pumice.plugin.nn.blocks import Join, joined_feed_forward, linear, width

Width = Literal["", "divided", "feed_forward_length"]
"""Source of the width of an expert: ``expert_feed_forward_length``, or without it ``feed_forward_length``, which the
experts of a token may share; or always the latter."""

GATES = {1: "softmax", 2: "sigmoid", 3: "softmax_of_chosen", 4: "sqrt_softplus"}  # GGUF's expert_gating_func
SMALLEST_LIMIT = 1e-6  # of a clamped activation; smaller values mean no limit
MOST_EXPERTS = 1024  # per layer; the largest published models have half as many


@dataclass(frozen=True)
class Experts:
    """Number and size of experts, and the settings of their choice and mixture."""

    n_expert: int
    n_expert_used: int
    n_ff: int
    gate: str = "softmax"
    normalize: bool = True
    scale: float = 1.0
    n_group: int = 1  # experts are chosen from the best n_group_used groups
    n_group_used: int = 1
    weighs_inputs: bool = False  # weights multiply the experts' inputs rather than results


def n_expert(hparams: HParams) -> int:
    """Return the number of experts in a layer; 0 for a dense model."""
    return hparams.get_int("expert_count", 0)


def read_gate(hparams: HParams, default: str = "") -> str:
    """Return the gate that turns logits into weights; without a default the file must set it."""
    key = "expert_gating_func"
    code = hparams.get_int(key, 0) if default else hparams.get_int(key)
    if code == 0 and default:
        return default
    if code not in GATES:
        raise hparams.wrong(key, f"is {code}, but only {', '.join(map(str, GATES))} are supported")
    return GATES[code]


def read_experts(
    hparams: HParams, layer: int, *, gate: str = "softmax", normalize: bool | None = True, width: Width = ""
) -> Experts:
    """Read the settings of a layer's experts; ``normalize`` None takes the file's ``expert_weights_norm``."""
    total = n_expert(hparams)
    if not 1 <= total <= MOST_EXPERTS:
        raise hparams.wrong("expert_count", f"is {total}, but must be from 1 to {MOST_EXPERTS}")
    used = hparams.count("expert_used_count", layer)
    if used > total:
        raise hparams.wrong("expert_used_count", f"is {used}, but there are only {total} experts")
    n_group = hparams.get_int("expert_group_count", 0) or 1
    n_group_used = hparams.get_int("expert_group_used_count", 0) or 1
    if n_group < 1 or total % n_group:
        raise hparams.wrong("expert_group_count", f"is {n_group}, which does not divide {total} experts")
    if not 1 <= n_group_used <= n_group:
        raise hparams.wrong("expert_group_used_count", f"is {n_group_used} of {n_group} groups")
    n_ff = 0 if width == "feed_forward_length" else hparams.count("expert_feed_forward_length", layer, 0, low=0)
    if n_ff == 0:
        n_ff = hparams.count("feed_forward_length", layer) // (used if width == "divided" else 1)
    scale = hparams.number("expert_weights_scale", 0.0) or 1.0  # 0: unset
    if normalize is None:
        normalize = hparams.get_bool("expert_weights_norm", False)
    return Experts(total, used, n_ff, gate, normalize, scale, n_group, n_group_used)


def mixture_of_experts(
    g: GraphBuilder,
    x: Tensor,
    blk: str,
    experts: Experts,
    join: Join | None = None,
    *,
    router_input: Tensor | None = None,
) -> Tensor:
    """Return the result of a MoE layer: the weighted sum of each token's experts, which are gated feed-forward blocks.

    ``join`` joins gate and up, by default as ``swiglu``. The router reads ``router_input``, by default ``x``.
    """
    ids, weights = choose_experts(g, x if router_input is None else router_input, blk, experts)
    return run_experts(g, x, blk, experts, ids, weights, join)


def run_experts(
    g: GraphBuilder,
    x: Tensor,
    blk: str,
    experts: Experts,
    ids: Tensor,
    weights: Tensor,
    join: Join | None = None,
    *,
    suffix: str = "_exps",
) -> Tensor:
    """Run the experts ``ids [t, n_expert_used]`` and add their results by ``weights``."""
    gate, up = _gate_and_up(g, x, blk, ids, experts, suffix)
    if experts.weighs_inputs:  # matrices are linear, so weights can multiply their results
        factors = weights.reshape(*weights.shape, 1)
        gate, up = gate * factors, up * factors
    y = (join or swiglu(g))(gate, up)
    y = expert_linear(g, y, f"{blk}ffn_down{suffix}", ids, experts.n_expert, width(x))
    return g.sum(y, axis=-2) if experts.weighs_inputs else g.expert_sum(y, weights)


def swiglu(g: GraphBuilder) -> Join:
    """``silu(gate) * up`` (Shazeer 2020, arXiv:2002.05202)."""
    return lambda gate, up: g.silu(gate) * up


def clamped_swiglu(g: GraphBuilder, limit: float) -> Join:
    """``silu(min(gate, limit)) * clamp(up, -limit, limit)``; 0 means no limit."""
    if limit < SMALLEST_LIMIT:
        return swiglu(g)
    return lambda gate, up: g.silu(g.clamp(gate, -float("inf"), limit)) * g.clamp(up, -limit, limit)


def late_clamped_swiglu(g: GraphBuilder, limit: float) -> Join:
    """``min(silu(gate), limit) * clamp(up, -limit, limit)``; 0 means no limit."""
    if limit < SMALLEST_LIMIT:
        return swiglu(g)
    return lambda gate, up: g.clamp(g.silu(gate), -float("inf"), limit) * g.clamp(up, -limit, limit)


def read_limit(hparams: HParams, key: str, layer: int, default: float | None = None) -> float:
    """Return the limit of a clamped activation in a layer. ``default`` None: the file must set it."""
    value = hparams.per_layer(key, layer + 1, *([] if default is None else [default]))[layer]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise hparams.wrong(key, f"is {value!r} for layer {layer}, but must be a number of at least 0")
    return float(value)


def gpt_oss_swiglu(g: GraphBuilder) -> Join:
    """``gate * sigmoid(1.702 gate) * (up + 1)``, with ``gate`` at most 7 and ``up`` between -7 and 7."""

    def join(gate: Tensor, up: Tensor) -> Tensor:
        gate = g.clamp(gate, -float("inf"), 7.0)
        return gate * g.sigmoid(gate * 1.702) * g.scale(g.clamp(up, -7.0, 7.0), 1.0, 1.0)

    return join


def choose_experts(g: GraphBuilder, x: Tensor, blk: str, experts: Experts) -> tuple[Tensor, Tensor]:
    """Return int32 ids and float32 weights ``[t, n_expert_used]`` of each token's experts."""
    logits = linear(g, x, f"{blk}ffn_gate_inp", experts.n_expert)
    shape = (experts.n_expert,)
    bias = g.find_weight(f"{blk}exp_probs_b.bias", shape) or g.find_weight(f"{blk}exp_probs_b", shape)
    return choose_by_logits(g, logits, bias, experts)


def choose_by_logits(g: GraphBuilder, logits: Tensor, bias: Weight | None, experts: Experts) -> tuple[Tensor, Tensor]:
    """Like ``choose_experts``, from the router's ``logits [t, n_expert]``."""
    ids = g.expert_ids(
        logits,
        bias,
        n_used=experts.n_expert_used,
        gate=experts.gate,
        n_group=experts.n_group,
        n_group_used=experts.n_group_used,
    )
    return ids, g.expert_weights(logits, ids, gate=experts.gate, normalize=experts.normalize, scale=experts.scale)


def without_idle(
    g: GraphBuilder, blk: str, ids: Tensor, weights: Tensor, n_expert: int, n_idle: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids below ``n_expert`` and weights ``[t, n_expert_used]``, and the sum of idle weights ``[t, 1]``.

    The ``n_idle`` experts after the others have no matrices; the ids that replace theirs have weight 0.
    """
    is_idle = g.constant(f"{blk}idle experts", [0.0] * n_expert + [1.0] * n_idle)
    idle = weights * g.embedding(is_idle, ids)
    return g.remainder(ids, n_expert), weights + idle * -1.0, g.sum(idle, axis=-1, keepdims=True)


def shared_expert(
    g: GraphBuilder,
    x: Tensor,
    blk: str,
    n_ff: int,
    join: Join | None = None,
    *,
    gated: bool = False,
) -> Tensor:
    """Return the shared expert's result, multiplied by the sigmoid of ``x @ ffn_gate_inp_shexp`` if ``gated``."""
    y = joined_feed_forward(g, x, blk, n_ff, join or swiglu(g), suffix="_shexp")
    if not gated:
        return y
    gate = g.weight(f"{blk}ffn_gate_inp_shexp.weight", (width(x),))
    return y * g.sigmoid(g.sum(x * gate, axis=-1, keepdims=True))


def expert_linear(g: GraphBuilder, x: Tensor, name: str, ids: Tensor, n_expert: int, n_out: int) -> Tensor:
    """Multiply ``x`` by each chosen expert's matrix and scale, and add its bias: ``[t, n_expert_used, n_out]``."""
    y = g.mul_mat_id(x, g.weight(f"{name}.weight", (n_expert, n_out, width(x))), ids)
    return _scaled_and_biased(g, y, name, ids, (n_expert, n_out))


def _scaled_and_biased(g: GraphBuilder, y: Tensor, name: str, ids: Tensor, shape: tuple[int, int]) -> Tensor:
    """Multiply experts' results by their scales, and add their biases ``[n_expert, n_out]``, if the file has any."""
    n_expert, _ = shape
    scale = g.find_weight(f"{name}.scale", (n_expert,))
    if scale is not None:
        y = y * g.embedding(scale, ids).reshape(*ids.shape, 1)
    bias = g.find_weight(f"{name}.bias", shape)
    return y if bias is None else y + g.embedding(bias, ids)


def _gate_and_up(
    g: GraphBuilder, x: Tensor, blk: str, ids: Tensor, experts: Experts, suffix: str
) -> tuple[Tensor, Tensor]:
    n_ff = experts.n_ff
    if g.find_weight(f"{blk}ffn_gate_up{suffix}.weight"):
        both = expert_linear(g, x, f"{blk}ffn_gate_up{suffix}", ids, experts.n_expert, 2 * n_ff)
        names = f"{blk}ffn_gate{suffix}", f"{blk}ffn_up{suffix}"  # joined matrices may have separate scales and biases
        parts = g.slice(both, 0, n_ff), g.slice(both, n_ff, 2 * n_ff)
        shape = experts.n_expert, n_ff
        gate, up = (_scaled_and_biased(g, y, name, ids, shape) for y, name in zip(parts, names, strict=True))
        return gate, up
    gate = expert_linear(g, x, f"{blk}ffn_gate{suffix}", ids, experts.n_expert, n_ff)
    return gate, expert_linear(g, x, f"{blk}ffn_up{suffix}", ids, experts.n_expert, n_ff)
