"""BitNet b1.58 (Ma et al. 2024, arXiv:2402.17764)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import optional
from pumice.plugin.nn.blocks import linear_then_scale
from pumice.plugin.nn.decoder import Decoder


class BitNet(Decoder):
    """An additional norm before the last matrix of each block; matrices may have scales."""

    scaled = Decoder.scaled | optional.FEED_FORWARD

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        return super().attention(g, x, blk, i, finish=lambda y: self.norm(g, y, blk + "attn_sub_norm"), **options)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        gate, up = (linear_then_scale(g, x, blk + name, self.n_ff(i)) for name in ("ffn_gate", "ffn_up"))
        h = self.norm(g, g.silu(gate) * up, blk + "ffn_sub_norm")
        return linear_then_scale(g, h, blk + "ffn_down", self.n_embd)
