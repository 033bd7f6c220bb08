"""EXAONE 4 (LG AI Research 2025, arXiv:2507.11407)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import gated_feed_forward
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope


class Exaone4(Decoder):
    """Norms follow the blocks. The 32B model mixes sliding layers with global ones that have no positions."""

    n_layer_32b = 64

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        h = self.attention(g, x, blk, i, norm=self.norm, window=self.window(i))
        x = x + self.norm(g, h, blk + "post_attention_norm")
        h = gated_feed_forward(g, x, blk, self.n_ff(i), g.silu)
        return x + self.norm(g, h, blk + "post_ffw_norm")

    def window(self, i: int) -> int:
        sliding = self.n_layer == self.n_layer_32b and is_sliding(self.hparams, i, period=4)
        return sliding_window(self.hparams, 4096) if sliding else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        return super().rope(g, i) if self.window(i) or self.n_layer != self.n_layer_32b else None
