"""Snowflake Arctic (2024)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import gated_feed_forward
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.experts import mixture_of_experts, read_experts


class Arctic(Decoder):
    """Llama's layer with a feed-forward block of the residual stream's width, in parallel with experts."""

    neox = False

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        experts = read_experts(self.hparams, i, width="feed_forward_length")
        mixed = mixture_of_experts(g, self.norm(g, x, blk + "ffn_norm_exps"), blk, experts)
        return super().layer(g, x, blk, i) + mixed

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return gated_feed_forward(g, x, blk, self.n_embd, g.silu)
