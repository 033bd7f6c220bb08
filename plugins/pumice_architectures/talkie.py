"""Talkie (2026), a model trained on English of 1930 and before."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.decoder import Decoder


class Talkie(Decoder):
    """Unweighted norms, a gain per query head, and the embeddings added again in each layer."""

    scaled = Decoder.scaled | {"ffn_down"}

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.logit_scale = hparams.number("logit_scale")

    def embed(self, g: GraphBuilder) -> Tensor:
        self.embeddings = self.norm(g, super().embed(g), "")
        return self.embeddings

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return super().layer(g, x, blk, i) + self.embeddings * g.weight(f"{blk}layer_output_scale.weight", (1,))

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        return super().attention(g, x, blk, i, late_norm=self.norm, **options)

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        y = g.rms_norm(x, None, self.eps)
        return y * g.weight(f"{name}.weight", (int(x.shape[1]), 1)) if name.endswith("attn_q_norm") else y
