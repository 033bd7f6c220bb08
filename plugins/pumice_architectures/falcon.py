"""Falcon 7B, 40B and 180B (Almazrouei et al. 2023, arXiv:2311.16867)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import feed_forward
from pumice.plugin.nn.decoder import LayerNormDecoder


class Falcon(LayerNormDecoder):
    """Parallel attention and feed-forward blocks; the larger models have a norm for each."""

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        h = self.norm(g, x, blk + "attn_norm")
        own = g.find_weight(f"{blk}attn_norm_2.weight")
        attended = self.attention(g, self.norm(g, x, blk + "attn_norm_2") if own else h, blk, i)
        return x + (attended + feed_forward(g, h, blk, self.n_ff(i), g.gelu))
