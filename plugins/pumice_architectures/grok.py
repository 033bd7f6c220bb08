"""Grok 1 and 2 (xAI 2024, 2025)."""

from __future__ import annotations

import math
from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import Join, gated_feed_forward, softcap
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.rope import Rope, read_rope


class Grok(ExpertDecoder):
    """Norms before and after each block, soft caps, GELU in experts; Grok 2 has a dense block in parallel.

    Files of Grok 1 have none of the multipliers, whose defaults are therefore its values.
    """

    norms_after = ("attn_output_norm", "post_ffw_norm")

    def embed(self, g: GraphBuilder) -> Tensor:
        return super().embed(g) * self.hparams.number("embedding_scale", 78.38367176906169)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        scale = self.hparams.number("attention.output_scale", 0.08838834764831845)
        cap = self.hparams.number("attn_logit_softcapping", 30.0, low=1e-3)
        return super().attention(g, x, blk, i, scale=scale, softcap=cap, **options)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        mixed = super().feed_forward(g, x, blk, i)
        if not g.find_weight(f"{blk}ffn_up.weight"):
            return mixed
        return (gated_feed_forward(g, x, blk, self.n_ff(i), g.gelu) + mixed) * math.sqrt(0.5)

    def join(self, g: GraphBuilder, i: int, block: str) -> Join:
        return lambda gate, up: g.gelu(gate) * up

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        old = name.replace("post_ffw_norm", "layer_output_norm")
        return super().norm(g, x, old if g.find_weight(f"{old}.weight") else name)

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        logits = super().head(g, x) * self.hparams.number("logit_scale", 0.5773502691896257)
        return softcap(g, logits, self.hparams.number("final_logit_softcapping", 0.0))

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        return read_rope(self.hparams, g, self.heads(i).k_dim, neox=self.neox, beta_fast=8.0)
