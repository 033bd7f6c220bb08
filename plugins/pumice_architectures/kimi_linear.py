"""Kimi Linear (Moonshot 2025, arXiv:2510.26692): delta nets with a decay of each channel, some layers of MLA."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import (
    Heads,
    blocks,
    latent_attention,
    mixture_of_experts,
    read_experts,
    read_gate,
    recurrent,
    shared_expert,
)


class KimiLinear(recurrent.Hybrid):
    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        """Latent attention without positions."""
        if self.recurrent(i):
            return self.mixer(g, x, blk, i)
        hparams, n_head = self.hparams, self.hparams.count("attention.head_count", i)
        k_dim, v_dim = (hparams.positive(f"attention.{kind}_length_mla") for kind in ("key", "value"))
        q = blocks.linear(g, x, blk + "attn_q", n_head * k_dim).reshape(x.shape[0], n_head, k_dim)
        rank, n_rot = hparams.positive("attention.kv_lora_rank"), hparams.positive("rope.dimension_count")
        y = latent_attention(g, x, q, blk, rank, v_dim, None, norm=self.norm, scale=k_dim**-0.5, n_rot=n_rot)
        return blocks.linear(g, y.reshape(x.shape[0], n_head * v_dim), blk + "attn_output", self.n_embd)

    def mixer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Kimi delta attention."""
        n_head, d = self.hparams.count("attention.head_count", i), self.hparams.positive("kda.head_dim")
        n_taps, n, shape = self.hparams.positive("ssm.conv_kernel"), n_head * d, (x.shape[0], n_head, d)
        mixed = blocks.qkv(g, x, blk, Heads(n_head, n_head, d, d))
        q, k, v = (
            recurrent.causal_conv(g, y.reshape(x.shape[0], n), f"{blk}ssm_conv1d_{name}", n_taps).reshape(*shape)
            for y, name in zip(mixed, "qkv", strict=True)
        )
        q, k = recurrent.l2_norm(g, q, self.eps, d**-0.5), recurrent.l2_norm(g, k, self.eps)
        rate = self.low_rank(g, x, blk + "ssm_f", d, n) + g.weight(f"{blk}ssm_dt.bias", (n,))
        decay = g.exp(g.softplus(rate).reshape(*shape) * recurrent.squeezed(g, f"{blk}ssm_a", (n_head, 1)))
        beta = g.sigmoid(blocks.linear(g, x, blk + "ssm_beta", n_head))
        y = self.norm(g, g.linear_attention(q, k, v, decay, beta), blk + "ssm_norm").reshape(x.shape[0], n)
        gate = g.sigmoid(self.low_rank(g, x, blk + "ssm_g", d, n))
        return blocks.linear(g, y * gate, blk + "attn_output", self.n_embd)

    def low_rank(self, g: GraphBuilder, x: Tensor, name: str, rank: int, n_out: int) -> Tensor:
        return blocks.linear(g, blocks.linear(g, x, name + "_a", rank), name + "_b", n_out)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        if i < self.hparams.get_int("leading_dense_block_count", 0):
            return super().feed_forward(g, x, blk, i)
        experts = read_experts(self.hparams, i, gate=read_gate(self.hparams))
        n_ff = experts.n_ff * self.hparams.positive("expert_shared_count")
        return mixture_of_experts(g, x, blk, experts) + shared_expert(g, x, blk, n_ff)
