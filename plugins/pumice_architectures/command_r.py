"""Command R and R+ (Cohere 2024)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.decoder import LayerNormDecoder


class CommandR(LayerNormDecoder):
    """Attention and feed-forward side by side, norms without bias; R+ normalizes queries and keys."""

    neox = False

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        h = self.norm(g, x, blk + "attn_norm")
        qk_norm = self.norm if g.find_weight(f"{blk}attn_q_norm.weight") else None
        attended = self.attention(g, h, blk, i, norm=qk_norm)
        return x + (attended + self.feed_forward(g, h, blk, i))

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        return super().head(g, x) * (self.hparams.number("logit_scale", 0.0) or 1.0)
