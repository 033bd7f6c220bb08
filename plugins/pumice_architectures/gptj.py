"""GPT-J (Wang and Komatsuzaki 2021) and CodeGen (Nijkamp et al. 2022, arXiv:2203.13474)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import feed_forward
from pumice.plugin.nn.decoder import LayerNormDecoder


class GPTJ(LayerNormDecoder):
    """Attention and feed-forward block read the same norm; RoPE rotates pairs of a part of each head."""

    neox = False

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        h = self.norm(g, x, blk + "attn_norm")
        return x + self.attention(g, h, blk, i) + feed_forward(g, h, blk, self.n_ff(i), g.gelu)
