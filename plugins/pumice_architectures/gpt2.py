"""GPT-2 (Radford et al. 2019)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import feed_forward, learned_positions
from pumice.plugin.nn.decoder import LayerNormDecoder


class GPT2(LayerNormDecoder):
    """Learned positions; the feed-forward block has no gate."""

    def embed(self, g: GraphBuilder) -> Tensor:
        return super().embed(g) + learned_positions(g, self.n_ctx_train, self.n_embd)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return feed_forward(g, x, blk, self.n_ff(i), g.gelu)

    def rope(self, g: GraphBuilder, i: int) -> None:
        return None
