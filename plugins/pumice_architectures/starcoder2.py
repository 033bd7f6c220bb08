"""StarCoder 2 (Lozhkov et al. 2024, arXiv:2402.19173), and the backbone of pocket-tts (Kyutai 2026)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import feed_forward
from pumice.plugin.nn.decoder import LayerNormDecoder


class StarCoder2(LayerNormDecoder):
    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return feed_forward(g, x, blk, self.n_ff(i), g.gelu)


class PocketTTS(StarCoder2):
    neox = False
