"""MiMo-V2 (Xiaomi 2026)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import optional
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.rope import Rope, frequency_base

SLIDING_BASE = 10000.0  # RoPE base of sliding layers


class MiMo2(ExpertDecoder):
    """Sliding windows with attention sinks, and values narrower than keys."""

    drafts = "before norm"
    gate = "sigmoid"
    sinks = None
    unused = optional.QKV_BIASES
    scaled = optional.ATTENTION_OUTPUT | {"eh_proj"}
    dense_without_router = True
    sliding_layers = "listed"

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        y = super().attention(g, x, blk, i, **options)
        return y * (self.hparams.number("attention.value_scale", 0.0) or 1.0)

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        if rope is None or not self.window(i):
            return rope
        base = frequency_base(self.hparams, "rope.freq_base_swa", SLIDING_BASE)
        return replace(rope, freq_base=base, freq_scale=1.0)
