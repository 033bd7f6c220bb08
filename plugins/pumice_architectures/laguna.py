"""Laguna (Poolside 2026)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import attention_gate
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope, sliding_rope


class Laguna(ExpertDecoder):
    """Softplus-gated attention; sliding windows except in every fourth layer, whose RoPE alone is scaled."""

    qk_norm = "before rope"
    gate, gate_of_file = "sigmoid", True
    normalize = None

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        finish = attention_gate(g, x, blk, self.heads(i), g.softplus)
        return super().attention(g, x, blk, i, finish=finish, **options)

    def window(self, i: int) -> int:
        return sliding_window(self.hparams) if is_sliding(self.hparams, i, period=4, first_global=True) else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        if rope is None or not self.window(i):
            return rope
        plain = replace(rope, freq_scale=1.0, ext_factor=0.0, attn_factor=1.0)
        return sliding_rope(self.hparams, plain, self.heads(i).k_dim)

    def shared_width(self, i: int) -> int:
        n_ff = self.hparams.count("expert_shared_feed_forward_length", i, default=0, low=0)
        return n_ff or self.experts(i).n_ff * self.hparams.count("expert_shared_count", i, default=1, low=0)
