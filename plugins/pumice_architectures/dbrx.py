"""DBRX (Databricks 2024)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.decoder import LayerNormDecoder
from pumice.plugin.nn.expert_decoder import ExpertDecoder


class DBRX(ExpertDecoder, LayerNormDecoder):
    """LayerNorm without biases; queries, keys and values are clamped."""

    norms_before = ("attn_norm", "attn_output_norm")
    expert_width = "feed_forward_length"

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        return super().attention(g, x, blk, i, clamp=self.hparams.number("attention.clamp_kqv"), **options)
