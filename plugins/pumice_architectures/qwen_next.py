"""Qwen3-Next, Qwen 3.5 and 3.6 (Alibaba 2025): gated delta nets, and gated attention in every fourth layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks, mixture_of_experts, optional, read_experts, recurrent, shared_expert
from pumice.plugin.nn.rope import rope_axes, rope_sections, rotated
from pumice.plugin.unstable import MediaRules
from pumice_architectures.epsilons import inner_eps

NET = frozenset({"attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta", "ssm_out"})  # matrices of a gated delta net


class Qwen3Next(recurrent.Hybrid):
    drafts = "after norm"
    norms_before = ("attn_norm", "post_attention_norm")
    scaled = optional.ATTENTION | {"eh_proj"} | optional.EXPERTS | optional.SHARED
    scaled_nets = optional.EXPERTS | optional.SHARED
    tiled = False  # whether value head i has key head i % n_key, not i // (n_value / n_key)

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.d_head, self.n_key_heads = hparams.positive("ssm.state_size"), hparams.positive("ssm.group_count")
        self.n_value_heads = hparams.positive("ssm.time_step_rank")
        self.v_dim = hparams.get_int("ssm.inner_size", self.d_head * self.n_value_heads) // self.n_value_heads
        if self.n_value_heads % self.n_key_heads:
            problem = f"is {self.n_value_heads}, not a multiple of {self.n_key_heads} key heads"
            raise hparams.wrong("ssm.time_step_rank", problem)

    def recurrent(self, i: int) -> bool:
        return i < self.n_layer and not recurrent.attends(self.hparams, i, 4)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        """Attention with an output gate, stored behind each head's query."""
        if self.recurrent(i):
            return self.mixer(g, x, blk, i)
        heads, rope, n_tokens = self.heads(i), self.rope(g, i), x.shape[0]
        n_head, k_dim = heads.n_head, heads.k_dim
        both, k, v = blocks.qkv(g, x, blk, replace(heads, n_head=2 * n_head))
        q, gate = recurrent.split(g, both.reshape(n_tokens, n_head, 2 * k_dim), k_dim, k_dim)
        q, k = self.norm(g, q, blk + "attn_q_norm"), self.norm(g, k, blk + "attn_k_norm")
        if rope:
            q, k = rope(g, q), rope(g, k)
        opened = g.sigmoid(gate.reshape(n_tokens, n_head * k_dim))
        return blocks.attend(g, blk, q, k, v, self.n_embd, finish=lambda y: y * opened, **options)

    def mixer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """A gated delta net (Yang et al. 2024, arXiv:2412.06464)."""
        d, n_key, n_value, n_tokens = self.d_head, self.n_key_heads, self.n_value_heads, x.shape[0]
        n_values = n_value * self.v_dim
        mixed, z = self.queries_keys_values(g, x, blk)
        alpha, beta = self.alpha_beta(g, x, blk)
        h = recurrent.causal_conv(g, mixed, blk + "ssm_conv1d", self.hparams.positive("ssm.conv_kernel"))
        q, k, v = recurrent.split(g, h, n_key * d, n_key * d, n_values)
        eps = inner_eps(self.hparams, self.eps)
        q = recurrent.l2_norm(g, q.reshape(n_tokens, n_key, d), eps, d**-0.5)
        k = recurrent.l2_norm(g, k.reshape(n_tokens, n_key, d), eps)
        rate = g.softplus(alpha + g.weight(f"{blk}ssm_dt.bias", (n_value,)))
        decay = g.exp(rate * g.weight(f"{blk}ssm_a", (n_value,)))
        v, beta = v.reshape(n_tokens, n_value, self.v_dim), self.fraction(g, beta)
        y = self.norm(g, g.linear_attention(q, k, v, decay, beta, tiled=self.tiled), blk + "ssm_norm")
        opened = self.gate_of_net(g, z) * y.reshape(n_tokens, n_values)
        return blocks.linear(g, opened, blk + "ssm_out", self.n_embd)

    def fraction(self, g: GraphBuilder, beta: Tensor) -> Tensor:
        """Return the fraction of a value that replaces what the state has for its key."""
        return g.sigmoid(beta)

    def gate_of_net(self, g: GraphBuilder, z: Tensor) -> Tensor:
        """Return the factor of a delta net's results."""
        return g.silu(z)

    def queries_keys_values(self, g: GraphBuilder, x: Tensor, blk: str) -> tuple[Tensor, Tensor]:
        """Return queries, keys and values concatenated, and the gate; old files interleave all four by key head."""
        d, n_key, n_value, n_tokens = self.d_head, self.n_key_heads, self.n_value_heads, x.shape[0]
        if g.find_weight(f"{blk}attn_qkv.weight") or not g.find_weight(f"{blk}ssm_in.weight"):
            mixed = blocks.linear(g, x, blk + "attn_qkv", 2 * n_key * d + n_value * self.v_dim)
            return mixed, blocks.linear(g, x, blk + "attn_gate", n_value * self.v_dim)
        widths = [d, d, n_value // n_key * d, n_value // n_key * d]
        y = blocks.linear(g, x, blk + "ssm_in", n_key * sum(widths)).reshape(n_tokens, n_key, sum(widths))
        q, k, v, z = (part.reshape(n_tokens, n_key * blocks.width(part)) for part in recurrent.split(g, y, *widths))
        return g.concat(g.concat(q, k), v), z

    def alpha_beta(self, g: GraphBuilder, x: Tensor, blk: str) -> tuple[Tensor, Tensor]:
        """Return per value head the input of the decay, and the fraction of a value to write."""
        n_key, n_value = self.n_key_heads, self.n_value_heads
        values_per_key, n_tokens = n_value // n_key, x.shape[0]
        y = blocks.linear(g, x, blk + "ssm_ba", 2 * n_value).reshape(n_tokens, n_key, 2 * values_per_key)
        beta, alpha = (
            part.reshape(n_tokens, n_value) for part in recurrent.split(g, y, values_per_key, values_per_key)
        )
        return alpha, beta

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        n_ff = self.hparams.get_int("expert_shared_feed_forward_length", 0) or self.n_ff(i)
        experts = mixture_of_experts(g, x, blk, read_experts(self.hparams, i, width="divided"))
        return experts + shared_expert(g, x, blk, n_ff, gated=True)


class Qwen35MoE(Qwen3Next):
    scaled = Qwen3Next.scaled | optional.FEED_FORWARD
    scaled_nets = Qwen3Next.scaled_nets | NET | optional.FEED_FORWARD
    tiled = True

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        rope_sections(hparams)  # checked, since text alone does not need them
        self.media_rules = MediaRules(rope_axes(hparams, rotated(hparams, self.heads(0).k_dim) // 2, interleaved=True))

    def alpha_beta(self, g: GraphBuilder, x: Tensor, blk: str) -> tuple[Tensor, Tensor]:
        return separate_alpha_beta(g, x, blk, self.n_value_heads)


class Qwen35(Qwen35MoE):
    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return super(Qwen3Next, self).feed_forward(g, x, blk, i)


def separate_alpha_beta(g: GraphBuilder, x: Tensor, blk: str, n_heads: int) -> tuple[Tensor, Tensor]:
    """Return what ``alpha_beta`` does, from a matrix for each: ``[t, n_heads]``."""
    alpha, beta = (blocks.linear(g, x, f"{blk}ssm_{name}", n_heads) for name in ("alpha", "beta"))
    return alpha, beta
