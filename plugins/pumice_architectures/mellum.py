"""Mellum 2 (JetBrains 2026) and Maple: Qwen 3 with experts and sliding windows."""

from __future__ import annotations

from pumice.plugin import GraphBuilder
from pumice.plugin.nn.blocks import Join
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.experts import clamped_swiglu, read_limit
from pumice_architectures.qwen_moe import Qwen3MoE


class Mellum(Qwen3MoE):
    """RoPE is scaled in global layers only."""

    expert_width = ""
    sliding_layers = 4
    own_sliding_rope = unscaled_sliding_rope = True


class Maple(Qwen3MoE):
    """Only sliding layers have positions; the experts' activation is clamped by a limit per layer."""

    scaled = ExpertDecoder.scaled
    expert_width = ""
    sliding_layers = "listed"
    own_sliding_rope = True
    rope_layers = "sliding"

    def join(self, g: GraphBuilder, i: int, block: str) -> Join:
        return clamped_swiglu(g, read_limit(self.hparams, "swiglu_clamp_exp", i))
