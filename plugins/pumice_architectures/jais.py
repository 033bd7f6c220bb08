"""Jais (Sengupta et al. 2023, arXiv:2308.16149)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.decoder import LayerNormDecoder
from pumice.plugin.nn.hyper import alibi_slopes


class Jais(LayerNormDecoder):
    """ALiBi, SwiGLU, and scores divided by a head's width, not by its root (muP, arXiv:2203.03466)."""

    rope_layers = "none"

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        heads = self.heads(i)
        slopes = alibi_slopes(heads.n_head, self.hparams.number("attention.max_alibi_bias", 0.0))
        return super().attention(g, x, blk, i, slopes=slopes, scale=1 / heads.k_dim, **options)
