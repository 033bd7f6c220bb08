"""StableLM 3B (Tow et al. 2023) and StableLM 2 (Bellagente et al. 2024, arXiv:2402.17834)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.decoder import LayerNormDecoder


class StableLM(LayerNormDecoder):
    """The 12B model normalizes queries and keys, and runs attention and feed-forward in parallel from one norm."""

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        h = self.norm(g, x, blk + "attn_norm")
        qk_norm = self.norm if g.find_weight(f"{blk}attn_q_norm.weight") else None
        x = x + self.attention(g, h, blk, i, norm=qk_norm)
        if g.find_weight(f"{blk}ffn_norm.weight"):
            h = self.norm(g, x, blk + "ffn_norm")
        return x + self.feed_forward(g, h, blk, i)
