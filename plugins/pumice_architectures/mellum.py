"""Mellum 2 (JetBrains 2026) and Maple: Qwen 3 with experts and sliding windows."""

from __future__ import annotations

from dataclasses import replace

from pumice.plugin import GraphBuilder
from pumice.plugin.nn.blocks import Join
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.experts import clamped_swiglu, read_limit
from pumice.plugin.nn.hyper import is_sliding, listed_window, sliding_window
from pumice.plugin.nn.rope import Rope, sliding_rope
from pumice_architectures.qwen_moe import Qwen3MoE


class Mellum(Qwen3MoE):
    """RoPE is scaled in global layers only."""

    expert_width = ""

    def window(self, i: int) -> int:
        return sliding_window(self.hparams) if is_sliding(self.hparams, i, period=4) else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        return replace(rope, freq_scale=1.0, ext_factor=0.0, attn_factor=1.0) if rope and self.window(i) else rope


class Maple(Qwen3MoE):
    """Only sliding layers have positions; the experts' activation is clamped by a limit per layer."""

    scaled = ExpertDecoder.scaled
    expert_width = ""

    def window(self, i: int) -> int:
        return listed_window(self.hparams, i)

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        if rope is None or not self.window(i):
            return None
        return sliding_rope(self.hparams, rope, self.heads(i).k_dim)

    def join(self, g: GraphBuilder, i: int, block: str) -> Join:
        return clamped_swiglu(g, read_limit(self.hparams, "swiglu_clamp_exp", i))
