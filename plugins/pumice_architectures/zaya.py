"""ZAYA 1 (Zyphra 2025): compressed convolutional attention (arXiv:2510.04476), routers that know the last layer's."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import attend, linear, width
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.experts import choose_by_logits, read_experts, run_experts, without_idle
from pumice.plugin.nn.recurrent import split

EPS = 1e-14  # of the norm of queries and keys


class Zaya(Decoder):
    """The last expert computes nothing; blocks and the residual stream have scales and biases."""

    sliding_layers = "listed"
    own_sliding_rope = True

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_route = hparams.positive("router_length")
        self.state: Tensor | None = None  # what the last router knew

    def embed(self, g: GraphBuilder) -> Tensor:
        return self.scale(g, super().embed(g), "token_embd_scale")

    def scale(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        weight, bias = (g.weight(f"{name}.{part}", (self.n_embd,)) for part in ("weight", "bias"))
        return (x + bias) * weight

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        for block, name in ((self.attention, "attn"), (self.feed_forward, "ffn")):
            h = block(g, self.norm(g, x, f"{blk}{name}_norm"), blk, i)
            x = self.scale(g, h, f"{blk}{name}_scale") + self.scale(g, x, f"{blk}{name}_residual_scale")
        return x

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        """Mix queries and keys of some tokens; half of the values are those of the token before."""
        heads, rope, n_tokens = self.heads(i), self.rope(g, i), x.shape[0]
        n_head, n_kv, d = heads.n_head, heads.n_head_kv, heads.k_dim
        q, k = linear(g, x, blk + "attn_q", n_head * d), linear(g, x, blk + "attn_k", n_kv * d)
        mixed_q, mixed_k = split(g, self.mixed(g, g.concat(q, k), blk, n_head + n_kv), n_head * d, n_kv * d)
        grouped = n_tokens, n_kv, n_head // n_kv, d
        mean = (q.reshape(*grouped) + k.reshape(n_tokens, n_kv, 1, d)) * 0.5
        q = mixed_q.reshape(n_tokens, n_head, d) + mean.reshape(n_tokens, n_head, d)
        k = mixed_k.reshape(n_tokens, n_kv, d) + g.sum(mean, axis=-2) * (n_kv / n_head)
        q, k = g.rms_norm(q, None, EPS), g.rms_norm(k, None, EPS) * g.weight(f"{blk}attn_k_scale.weight", (n_kv, 1))
        before = delayed(g, linear(g, x, blk + "attn_v_delayed", n_kv * d // 2), f"{blk}values", 1)
        v = g.concat(linear(g, x, blk + "attn_v", n_kv * d // 2), before).reshape(n_tokens, n_kv, d)
        if rope:
            q, k = rope(g, q), rope(g, k)
        return attend(g, blk, q, k, v, self.n_embd, window=self.window(i), **options)

    def mixed(self, g: GraphBuilder, x: Tensor, blk: str, n_head: int) -> Tensor:
        """Convolve each channel, then each head: ``[t, n_head * d]``."""
        n, d = width(x), width(x) // n_head
        n_taps, n_head_taps = (self.hparams.positive(f"attention.{name}_kernel") for name in ("channel", "head"))
        x = g.conv1d(x, g.weight(f"{blk}attn_channel_conv.weight", (n, n_taps)), None)
        lags = [delayed(g, x, f"{blk}heads", lag) for lag in range(n_head_taps - 1, 0, -1)]
        taps = reduce(g.concat, [y.reshape(x.shape[0], n_head, d) for y in (*lags, x)])
        y = g.batched_linear(taps, g.weight(f"{blk}attn_head_conv.weight", (n_head, d, n_head_taps * d)))
        return (y + g.weight(f"{blk}attn_head_conv.bias", (n_head, d))).reshape(*x.shape)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        n, experts = self.n_route, read_experts(self.hparams, i, normalize=False)
        state = linear(g, x, blk + "ffn_router_in", n)
        if self.state is not None and i:
            state = state + self.state * g.weight(f"{blk}ffn_router_last.weight", (n,))
        self.state, h = state, self.norm(g, state, blk + "ffn_router_norm")
        for name in ("ffn_router_1", "ffn_router_2"):
            h = g.gelu(linear(g, h, blk + name, n))
        logits = linear(g, h, blk + "ffn_gate_inp", experts.n_expert + 1)
        bias = g.weight(f"{blk}exp_probs_b.bias", (experts.n_expert + 1,))
        ids, weights = choose_by_logits(g, logits, bias, replace(experts, n_expert=experts.n_expert + 1))
        ids, weights, _ = without_idle(g, blk, ids, weights, experts.n_expert, 1)
        return run_experts(g, x, blk, experts, ids, weights)


def delayed(g: GraphBuilder, x: Tensor, name: str, lag: int) -> Tensor:
    """Return ``x [t, c]`` of the token ``lag`` before, 0 before the first."""
    taps = np.zeros((width(x), lag + 1))
    taps[:, 0] = 1.0
    return g.conv1d(x, g.constant(f"{name}, {lag} before", taps), None)
