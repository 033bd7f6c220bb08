"""GPT-2 (Radford et al. 2019)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, ModelError, Tensor
from pumice.plugin.nn.blocks import feed_forward
from pumice.plugin.nn.decoder import LayerNormDecoder


class GPT2(LayerNormDecoder):
    def embed(self, g: GraphBuilder) -> Tensor:
        """Positions are learned: a row for each, and no more."""
        table = g.weight("position_embd.weight", (self.n_ctx_train, self.n_embd))
        if g.n_ctx > self.n_ctx_train:
            raise ModelError(
                f"the model has positions for {self.n_ctx_train} tokens: use n_ctx={self.n_ctx_train} or less"
            )
        return super().embed(g) + g.embedding(table, g.positions)

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        x = x + self.attention(g, self.norm(g, x, blk + "attn_norm"), blk, i)
        return x + feed_forward(g, self.norm(g, x, blk + "ffn_norm"), blk, self.n_ff(i), g.gelu)

    def rope(self, g: GraphBuilder, i: int) -> None:
        return None
