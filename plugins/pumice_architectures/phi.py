"""Phi-2 (Javaheripi et al. 2023) and Phi-3, Phi-4 (Abdin et al. 2024, arXiv:2404.14219)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import feed_forward, width
from pumice.plugin.nn.decoder import Decoder, LayerNormDecoder


class Phi2(LayerNormDecoder):
    """One norm, then attention and feed-forward side by side."""

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        h = self.norm(g, x, blk + "attn_norm")
        return x + (self.attention(g, h, blk, i) + feed_forward(g, h, blk, self.n_ff(i), g.gelu))


class Phi3(Decoder):
    """Llama's layer with fused matrices. Its sliding window is not applied, as llama.cpp does not apply it."""

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        x = x + self.attention(g, self.norm(g, x, blk + "attn_norm"), blk, i)
        return x + self.feed_forward(g, self.norm(g, x, blk + "ffn_norm"), blk, self.n_ff(i))

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, n_ff: int) -> Tensor:
        both = g.weight(f"{blk}ffn_up.weight", (2 * n_ff, width(x)))  # the gate's rows, then those of up
        gate = g.linear(x, both.rows(0, n_ff))
        up = g.linear(x, both.rows(n_ff, 2 * n_ff))
        return g.linear(g.silu(gate) * up, g.weight(f"{blk}ffn_down.weight", (width(x), n_ff)))
