"""DeciLM and Nemotron, derived from Llama 3 by architecture search (Bercovich et al. 2024, arXiv:2411.19146)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import linear
from pumice.plugin.nn.decoder import Decoder


class Deci(Decoder):
    """Llama with heads and widths per layer; some layers have no attention, or a single matrix for it."""

    neox = False

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        if self.n_ff(i) == 0:
            return x
        if self.count("attention.head_count", i):
            x = x + self.mix(g, self.norm(g, x, blk + "attn_norm"), blk, i)
        return x + self.feed_forward(g, self.norm(g, x, blk + "ffn_norm"), blk, i)

    def mix(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        if self.count("attention.head_count_kv", i):
            return self.attention(g, x, blk, i)
        return linear(g, x, blk + "attn_output", self.n_embd)

    def n_ff(self, i: int) -> int:
        return self.count("feed_forward_length", i)

    def count(self, key: str, i: int) -> int:
        return self.hparams.count(key, i, low=0)
