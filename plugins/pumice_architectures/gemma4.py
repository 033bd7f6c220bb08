"""Gemma 4 (Google 2026), and its parts shared with Gemma 3n: per-layer inputs, and caches shared by layers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor
from pumice.plugin.nn import optional
from pumice.plugin.nn.blocks import attend, gated_feed_forward, linear, n_vocab, qkv, width
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.experts import choose_by_logits, read_experts, run_experts
from pumice.plugin.nn.hyper import Heads, read_heads, sliding_window
from pumice.plugin.nn.rope import Rope, frequency_base, read_rope
from pumice.plugin.unstable import STREAM, KVState, MediaRules

CAUSAL_WIDTHS = (1536, 2560)  # of models in which the tokens of an image do not see those that follow


class SharedCaches(Decoder):
    """The last layers have no keys and values: each reads the cache of the last layer of its kind that has them.

    Values have a norm without weight, and may equal the keys before their norm. Scores are not scaled.
    """

    norms_after = ("post_attention_norm", "post_ffw_norm")
    n_cached: int  # layers with keys and values

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.embedding_scale = math.sqrt(self.n_embd)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        heads, rope, window = self.heads(i), self.rope(g, i), self.window(i)
        q = self.norm(g, qkv(g, x, blk, heads, ["attn_q"])[0], blk + "attn_q_norm")
        q = rope(g, q, self.positions(g)) if rope else q
        if i >= self.n_cached:
            cache = self.shared_cache(g, bool(window))
            return attend(g, blk, q, None, None, self.n_embd, scale=1.0, window=window, cache=cache)
        k, *values = qkv(g, x, blk, heads, ["attn_k", "attn_v"] if self.has_values(g, blk) else ["attn_k"])
        v = g.rms_norm(values[0] if values else k, None, self.eps)
        k = self.norm(g, k, blk + "attn_k_norm")
        return attend(g, blk, q, rope(g, k) if rope else k, v, self.n_embd, scale=1.0, window=window)

    def positions(self, g: GraphBuilder) -> Tensor:
        """Return the positions of the queries."""
        return g.positions

    def shared_cache(self, g: GraphBuilder, sliding: bool) -> KVState:
        """Return the cache for layers without keys and values."""
        return g.cache(self.n_cached - (2 if sliding else 1))

    def has_values(self, g: GraphBuilder, blk: str) -> bool:
        return True

    def sliding_rope(self, g: GraphBuilder, i: int) -> Rope:
        """Return unscaled RoPE with the base of sliding layers."""
        rope = read_rope(self.hparams, g, self.heads(i).k_dim, neox=self.neox, sliding=True)
        base = frequency_base(self.hparams, "rope.freq_base_swa")
        return replace(rope, freq_base=base, freq_scale=1.0, attn_factor=1.0)


def layer_inputs(g: GraphBuilder, x: Tensor, n_layer: int, n_values: int, eps: float) -> Tensor:
    """Return the per-layer inputs ``[t, n_layer * n_values]``: a second embedding plus a projection of ``x``."""
    table = g.weight("per_layer_token_embd.weight", (n_vocab(g), n_layer * n_values))
    own = g.embedding(table, g.tokens) * math.sqrt(n_values)
    mapped = linear(g, x, "per_layer_model_proj", n_layer * n_values) * width(x) ** -0.5
    mapped = mapped.reshape(x.shape[0], n_layer, n_values)
    mapped = g.rms_norm(mapped, g.weight("per_layer_proj_norm.weight", (n_values,)), eps)
    return (mapped.reshape(*own.shape) + own) * 0.5**0.5


def from_layer_input(g: GraphBuilder, x: Tensor, blk: str, layer_input: Tensor) -> Tensor:
    """Project ``layer_input [t, n_values]``, gated by ``x [t, n_embd]``, to ``[t, n_embd]``."""
    return linear(g, g.gelu(linear(g, x, blk + "inp_gate", width(layer_input))) * layer_input, blk + "proj", width(x))


class TwoKinds(SharedCaches):
    """Layers with and without a window differ in heads, head width and RoPE."""

    def heads(self, i: int) -> Heads:
        return read_heads(self.hparams, self.n_embd, i, sliding=self.is_sliding(i))

    def window(self, i: int) -> int:
        return sliding_window(self.hparams) if self.is_sliding(i) else 0

    def is_sliding(self, i: int) -> bool:
        return bool(self.hparams.per_layer("attention.sliding_window_pattern", i + 1)[i])

    def rope(self, g: GraphBuilder, i: int) -> Rope:
        if self.is_sliding(i):
            return self.sliding_rope(g, i)
        g.weight("rope_freqs.weight")
        return read_rope(self.hparams, g, self.heads(i).k_dim, neox=self.neox)


class Gemma4(TwoKinds):
    """Gemma 4 with optional per-layer inputs and experts."""

    scaled = SharedCaches.scaled | optional.FEED_FORWARD | optional.EXPERTS | {"ffn_gate_inp"}
    norms_before = ("attn_norm", "")  # experts and the dense block have their own norms
    logit_softcap = 30.0

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_cached = self.n_layer - hparams.get_int("attention.shared_kv_layers", 0)
        self.n_values = hparams.get_int("embedding_length_per_layer_input")
        # not in E2B and E4B, which are told by their width, as in llama.cpp
        is_causal = self.n_embd in CAUSAL_WIDTHS
        self.media_rules = MediaRules(both_ways=() if is_causal else ("image", "video"), windows_only=True, pads=True)
        if not 0 < self.n_cached <= self.n_layer:
            raise hparams.wrong(
                "attention.shared_kv_layers", f"leaves a cache to {self.n_cached} of {self.n_layer} layers"
            )

    def embed(self, g: GraphBuilder) -> Tensor:
        x = super().embed(g)
        if self.n_values:
            self.inputs = layer_inputs(g, x, self.n_layer, self.n_values, self.eps)
        return x

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        x = super().layer(g, x, blk, i)
        if self.n_values:
            layer_input = g.slice(self.inputs, i * self.n_values, (i + 1) * self.n_values)
            x = x + self.norm(g, from_layer_input(g, x, blk, layer_input), blk + "post_norm")
        scale = g.find_weight(f"{blk}layer_output_scale.weight", (1,))
        return x if scale is None else x * scale

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        y = gated_feed_forward(g, self.norm(g, x, blk + "ffn_norm"), blk, self.n_ff(i), g.gelu)
        if not g.find_weight(f"{blk}ffn_gate_inp.weight"):
            return y
        of_experts = self.norm(g, self.run_experts(g, x, blk, i), blk + "post_ffw_norm_2")
        return self.norm(g, y, blk + "post_ffw_norm_1") + of_experts

    def run_experts(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Route from a separate norm of the input; ``ffn_gate_inp.scale [n_embd]`` is that norm's weight."""
        experts = read_experts(self.hparams, i)
        weight = g.weight(f"{blk}ffn_gate_inp.scale", (self.n_embd,))
        router = g.weight(f"{blk}ffn_gate_inp.weight", (experts.n_expert, self.n_embd))
        logits = g.linear(g.rms_norm(x, weight, self.eps) * self.n_embd**-0.5, router)
        h = self.norm(g, x, blk + "pre_ffw_norm_2")
        ids, weights = choose_by_logits(g, logits, None, experts)
        return run_experts(g, h, blk, experts, ids, weights, lambda gate, up: g.gelu(gate) * up)

    def build(self, g: GraphBuilder) -> Tensor | None:
        x = self.layers(g)
        g.output(STREAM, self.norm(g, x, "output_norm"))  # which the assistant reads
        return self.head(g, x)

    def has_values(self, g: GraphBuilder, blk: str) -> bool:
        return any(g.find_weight(f"{blk}{name}.weight") for name in ("attn_v", "attn_qkv"))


class Gemma4Assistant(TwoKinds):
    """The draft model of Gemma 4: layers without keys and values read the caches of the target's last two layers.

    The position of a step is the target's last cached position; every drafted token is taken to be the next one.
    """

    only_drafts = True
    n_cached = 0
    activation = "gelu"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_target = hparams.positive("embedding_length_out")

    def embed(self, g: GraphBuilder) -> Tensor:
        """Concatenate the target's embedding of a token with ``hidden [t, n_target]`` of the previous position."""
        table = g.target.weight("token_embd.weight", (n_vocab(g), self.n_target))
        token = g.embedding(table, g.tokens) * math.sqrt(self.n_target)
        both = g.concat(token, g.input("hidden", (N_TOKENS, self.n_target)))
        return linear(g, both, "nextn.pre_projection", self.n_embd)

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return super().layer(g, x, blk, i) * g.weight(f"{blk}layer_output_scale.weight", (1,))

    def positions(self, g: GraphBuilder) -> Tensor:
        return g.later_positions(1)

    def window(self, i: int) -> int:
        """Return the window, less the position that is drafted."""
        window = super().window(i)
        if self.is_sliding(i) and window < 2:
            raise self.hparams.wrong("attention.sliding_window", f"is {window}, it must be at least 2")
        return window - 1 if window else 0

    def shared_cache(self, g: GraphBuilder, sliding: bool) -> KVState:
        return g.target.cache(g.target.n_layer - (2 if sliding else 1))

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        x = self.norm(g, g.get_rows(x, g.output_ids), "output_norm")
        g.output("hidden", linear(g, x, "nextn.post_projection", self.n_target))
        return g.linear(x, g.weight("token_embd.weight", (n_vocab(g), self.n_embd)))
