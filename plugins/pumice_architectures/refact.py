"""Refact 1.6B (Small Magellanic Cloud AI 2023)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import optional
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.hyper import alibi_slopes

MAX_BIAS = 8.0


class Refact(Decoder):
    """Llama with ALiBi instead of rotary positions."""

    unused = optional.FEED_FORWARD_BIASES | {"attn_output.bias"}

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        return super().attention(g, x, blk, i, slopes=alibi_slopes(self.heads(i).n_head, MAX_BIAS), **options)

    def rope(self, g: GraphBuilder, i: int) -> None:
        return None
