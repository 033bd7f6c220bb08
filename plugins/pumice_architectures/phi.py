"""Phi-2 (Javaheripi et al. 2023) and Phi-3, Phi-4 (Abdin et al. 2024, arXiv:2404.14219)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import feed_forward
from pumice.plugin.nn.decoder import Decoder, LayerNormDecoder


class Phi2(LayerNormDecoder):
    """One norm, then parallel attention and feed-forward blocks."""

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        h = self.norm(g, x, blk + "attn_norm")
        return x + (self.attention(g, h, blk, i) + feed_forward(g, h, blk, self.n_ff(i), g.gelu))


class Phi3(Decoder):
    """Llama's layer with fused matrices. As in llama.cpp, only layers that a file lists have the window."""

    ffn = "fused"
    sliding_layers = 1
