"""MiniMax-01 (2025, arXiv:2501.08313): lightning attention, softmax attention in every eighth layer, and experts."""

from __future__ import annotations

import numpy as np

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks, mixture_of_experts, read_experts, recurrent


class MiniMax01(recurrent.Hybrid):
    scaled_nets = frozenset()

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.residual_scale = hparams.number("residual_scale")

    def recurrent(self, i: int) -> bool:
        return not recurrent.attends(self.hparams, i, 8)

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Run the layer; the residual is normalized, too."""
        x = self.norm(g, x, blk + "attn_norm")
        x = self.norm(g, self.attention(g, x, blk, i) + x * self.residual_scale, blk + "ffn_norm")
        return mixture_of_experts(g, x, blk, read_experts(self.hparams, i)) + x * self.residual_scale

    def mixer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Lightning attention (Qin et al. 2024, arXiv:2401.04658): a constant decay per head."""
        heads, n_tokens = self.heads(i), x.shape[0]
        n_head, d = heads.n_head, heads.k_dim
        qkv = g.silu(blocks.linear(g, x, blk + "attn_qkv", 3 * n_head * d)).reshape(n_tokens, n_head, 3 * d)
        q, k, v = recurrent.split(g, qkv, d, d, d)
        slopes = 2.0 ** (-8 / n_head * np.arange(1, n_head + 1))
        depth = 1 - i / max(self.n_layer - 1, 1) + 1e-5
        y = g.linear_attention(q, k, v, g.constant(f"{blk}decay", np.exp(-slopes * depth)))
        y = self.norm(g, y.reshape(n_tokens, n_head * d), blk + "attn_norm_2")
        gate = g.sigmoid(blocks.linear(g, x, blk + "attn_gate", n_head * d))
        return blocks.linear(g, gate * y, blk + "attn_output", self.n_embd)
