"""BLOOM (BigScience 2022, arXiv:2211.05100)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import feed_forward
from pumice.plugin.nn.decoder import LayerNormDecoder
from pumice.plugin.nn.hyper import alibi_slopes

MAX_BIAS = 8.0


class Bloom(LayerNormDecoder):
    """ALiBi, and a norm of the embeddings."""

    def embed(self, g: GraphBuilder) -> Tensor:
        return self.norm(g, super().embed(g), "token_embd_norm")

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        return super().attention(g, x, blk, i, slopes=alibi_slopes(self.heads(i).n_head, MAX_BIAS), **options)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return feed_forward(g, x, blk, self.n_ff(i), g.gelu)

    def rope(self, g: GraphBuilder, i: int) -> None:
        return None
