"""LFM2 (Liquid AI 2025, arXiv:2511.23404), dense and with experts: short convolutions, attention in some layers."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import ExpertDecoder, blocks, recurrent
from pumice.plugin.nn.decoder import SlidingLayers
from pumice.plugin.nn.rope import Rope


class LFM2(recurrent.Hybrid):
    qk_norm = "before rope"
    sliding_layers: ClassVar[SlidingLayers] = "all"

    def mixer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Apply a short convolution with input and output gates."""
        n = self.n_embd
        b, c, h = recurrent.split(g, blocks.linear(g, x, blk + "shortconv.in_proj", 3 * n), n, n, n)
        kernel = g.weight(f"{blk}shortconv.conv.weight", (n, self.hparams.positive("shortconv.l_cache")))
        return blocks.linear(g, c * g.conv1d(b * h, kernel, None), blk + "shortconv.out_proj", n)

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return super().norm(g, x, "token_embd_norm" if name == "output_norm" else name)


class LFM2MoE(LFM2, ExpertDecoder):
    gate, gate_of_file = "", True


class LFM3(LFM2):
    """LFM3 (2026): norms around the blocks, a gate for each head, sliding windows with RoPE of their own."""

    norms_after = ("post_attention_norm", "post_ffw_norm")
    sliding_layers = "listed"
    own_sliding_rope = True
    attention_gate = "sigmoid"

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        return replace(rope, factors=None) if rope and self.window(i) else rope
