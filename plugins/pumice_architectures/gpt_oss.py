"""gpt-oss (OpenAI 2025, arXiv:2508.10925)."""

from __future__ import annotations

from dataclasses import replace

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.experts import gpt_oss_swiglu, mixture_of_experts, read_experts
from pumice.plugin.nn.rope import Rope, frequency_base


class GptOss(Decoder):
    """Attention sinks, sliding windows in every other layer, and experts with biases and a clamped activation."""

    norms_before = ("attn_norm", "post_attention_norm")
    sinks = True
    sliding_layers = 2

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        experts = read_experts(self.hparams, i, gate="softmax_of_chosen", normalize=False)
        return mixture_of_experts(g, x, blk, experts, gpt_oss_swiglu(g))

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        if rope and self.window(i):
            rope = replace(rope, freq_base=frequency_base(self.hparams, "rope.freq_base_swa", rope.freq_base))
        return rope
