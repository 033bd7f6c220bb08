"""OLMo 1 (Groeneveld et al. 2024, arXiv:2402.00838)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.decoder import Decoder


class Olmo(Decoder):
    """Llama with unweighted LayerNorm; queries, keys and values may be clamped."""

    neox = False
    eps_key = "attention.layer_norm_epsilon"

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return g.layer_norm(x, None, None, self.eps)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        clamp = self.hparams.number("attention.clamp_kqv", 0.0)
        return super().attention(g, x, blk, i, clamp=clamp, **options)
