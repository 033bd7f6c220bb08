"""Kimi Linear (Moonshot 2025, arXiv:2510.26692): delta nets with a decay per channel, MLA in some layers."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import Heads, Rope, blocks, latent_attention, optional, recurrent
from pumice.plugin.nn.blocks import linear
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice_architectures.epsilons import LatentNorms, inner_eps


class KimiLinear(LatentNorms, recurrent.Hybrid, ExpertDecoder):
    gate, gate_of_file = "", True
    shared = "expert_shared_count"
    scaled, scaled_nets = optional.ATTENTION_OUTPUT, frozenset()
    unused = optional.QKV_BIASES
    compressed = False  # whether latent attention may compress queries, too
    l2_eps = 0.0  # epsilon of the norms in delta attention; 0: the model's
    bound = 0.0  # lower bound of a decay's logarithm; 0: none

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        """Latent attention, in layers that have it."""
        if self.recurrent(i):
            return self.mixer(g, x, blk, i)
        hparams, n_head = self.hparams, self.hparams.count("attention.head_count", i)
        k_dim, v_dim = (hparams.positive(f"attention.{kind}_length_mla") for kind in ("key", "value"))
        q = self.queries(g, x, blk, n_head * k_dim).reshape(x.shape[0], n_head, k_dim)
        rank, n_rot = hparams.positive("attention.kv_lora_rank"), hparams.positive("rope.dimension_count")
        rope = self.latent_rope(g, n_rot) or n_rot
        y = latent_attention(g, x, q, blk, rank, v_dim, rope, norm=self.norm, scale=k_dim**-0.5)
        y = self.finish(g, x, y.reshape(x.shape[0], n_head * v_dim), blk, Heads(n_head, 1, k_dim, v_dim))
        return linear(g, y, blk + "attn_output", self.n_embd)

    def queries(self, g: GraphBuilder, x: Tensor, blk: str, n_out: int) -> Tensor:
        rank = self.hparams.get_int("attention.q_lora_rank", 0) if self.compressed else 0
        if rank <= 0:
            return linear(g, x, blk + "attn_q", n_out)
        latent = self.norm(g, linear(g, x, blk + "attn_q_a", rank), blk + "attn_q_a_norm")
        return linear(g, latent, blk + "attn_q_b", n_out)

    def latent_rope(self, g: GraphBuilder, n_rot: int) -> Rope | None:
        """Return None: latent attention has no positions here."""
        return None

    def finish(self, g: GraphBuilder, x: Tensor, y: Tensor, blk: str, heads: Heads) -> Tensor:
        """Post-process the results of latent attention before the output matrix."""
        return y

    def mixer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Kimi delta attention with the heads of the first layer, since files may store 0 for such layers."""
        n_head, d = self.hparams.count("attention.head_count", 0), self.hparams.positive("kda.head_dim")
        n_taps, n, shape = self.hparams.positive("ssm.conv_kernel"), n_head * d, (x.shape[0], n_head, d)
        mixed = blocks.qkv(g, x, blk, Heads(n_head, n_head, d, d))
        q, k, v = (
            recurrent.causal_conv(g, y.reshape(x.shape[0], n), f"{blk}ssm_conv1d_{name}", n_taps).reshape(*shape)
            for y, name in zip(mixed, "qkv", strict=True)
        )
        eps = self.l2_eps or inner_eps(self.hparams, self.eps)
        q, k = recurrent.l2_norm(g, q, eps, d**-0.5), recurrent.l2_norm(g, k, eps)
        rate = self.projected(g, x, blk + "ssm_f", d, n) + g.weight(f"{blk}ssm_dt.bias", (n,))
        decay = g.exp(self.log_decay(g, rate.reshape(*shape), g.weight(f"{blk}ssm_a", (n_head, 1))))
        beta = g.sigmoid(linear(g, x, blk + "ssm_beta", n_head))
        y = self.norm(g, g.linear_attention(q, k, v, decay, beta), blk + "ssm_norm").reshape(x.shape[0], n)
        return linear(g, y * g.sigmoid(self.projected(g, x, blk + "ssm_g", d, n)), blk + "attn_output", self.n_embd)

    def projected(self, g: GraphBuilder, x: Tensor, name: str, rank: int, n_out: int) -> Tensor:
        """Project by two matrices of low rank."""
        return linear(g, linear(g, x, name + "_a", rank), name + "_b", n_out)

    def log_decay(self, g: GraphBuilder, rate: Tensor, a: Tensor) -> Tensor:
        """Return a channel's decay logarithms ``[t, n_head, d]``; ``a`` is negative."""
        return g.sigmoid(rate * a * -1.0) * self.bound if self.bound else g.softplus(rate) * a
