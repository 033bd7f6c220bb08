"""Qwen 2, 2.5 (Yang et al. 2024, arXiv:2407.10671) and Qwen 3, dense and with experts (2025, arXiv:2505.09388)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import gated_feed_forward, mixture_of_experts
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.hyper import read_experts


class Qwen2(Decoder):
    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        x = x + self.attention(g, self.norm(g, x, blk + "attn_norm"), blk, i)
        return x + gated_feed_forward(g, self.norm(g, x, blk + "ffn_norm"), blk, self.n_ff(i), g.silu)


class Qwen3(Decoder):
    """Normalizes each head's queries and keys."""

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        x = x + self.attention(g, self.norm(g, x, blk + "attn_norm"), blk, i, norm=self.norm)
        return x + self.feed_forward(g, self.norm(g, x, blk + "ffn_norm"), blk, i)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return gated_feed_forward(g, x, blk, self.n_ff(i), g.silu, scaled=True)


class Qwen3MoE(Qwen3):
    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return mixture_of_experts(g, x, blk, read_experts(self.hparams, i), scaled=True)
