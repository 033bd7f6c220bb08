"""AFM (Arcee AI 2025)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import feed_forward
from pumice.plugin.nn.decoder import Decoder


class Arcee(Decoder):
    """Llama's layer with squared ReLU and no gate in the feed-forward block."""

    neox = False

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return feed_forward(g, x, blk, self.n_ff(i), g.relu_squared)
