"""LFM2 (Liquid AI 2025, arXiv:2511.23404), dense and with experts: short convolutions, attention in some layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import ExpertDecoder, blocks, recurrent, sliding_window
from pumice.plugin.nn.hyper import listed_window
from pumice.plugin.nn.rope import Rope, sliding_rope


class LFM2(recurrent.Hybrid):
    qk_norm = "before rope"

    def mixer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Apply a short convolution with input and output gates."""
        n = self.n_embd
        b, c, h = recurrent.split(g, blocks.linear(g, x, blk + "shortconv.in_proj", 3 * n), n, n, n)
        kernel = g.weight(f"{blk}shortconv.conv.weight", (n, self.hparams.positive("shortconv.l_cache")))
        return blocks.linear(g, c * g.conv1d(b * h, kernel, None), blk + "shortconv.out_proj", n)

    def window(self, i: int) -> int:
        return sliding_window(self.hparams)

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return super().norm(g, x, "token_embd_norm" if name == "output_norm" else name)


class LFM2MoE(LFM2, ExpertDecoder):
    gate, gate_of_file = "", True


class LFM3(LFM2):
    """LFM3 (2026): norms around the blocks, a gate for each head, sliding windows with RoPE of their own."""

    norms_after = ("post_attention_norm", "post_ffw_norm")

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        if not self.recurrent(i):
            options["finish"] = blocks.attention_gate(g, x, blk, self.heads(i), g.sigmoid)
        return super().attention(g, x, blk, i, **options)

    def window(self, i: int) -> int:
        return listed_window(self.hparams, i)

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        if rope is None or not self.window(i):
            return rope
        return replace(sliding_rope(self.hparams, rope, self.heads(i).k_dim), factors=None)
