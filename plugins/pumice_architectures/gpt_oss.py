"""gpt-oss (OpenAI 2025, arXiv:2508.10925)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.experts import mixture_of_experts, read_experts
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope, frequency_base


class GptOss(Decoder):
    """Attention sinks, every other layer sliding, and experts with biases and a clamped activation."""

    norms_before = ("attn_norm", "post_attention_norm")

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        sinks = g.weight(f"{blk}attn_sinks.weight", (self.heads(i).n_head,))
        return super().attention(g, x, blk, i, sinks=sinks, **options)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        experts = read_experts(self.hparams, i, gate="softmax_of_chosen", normalize=False)
        return mixture_of_experts(g, x, blk, experts, lambda gate, up: clamped_swiglu(g, gate, up))

    def window(self, i: int) -> int:
        return sliding_window(self.hparams) if is_sliding(self.hparams, i, period=2) else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        if rope and self.window(i):
            rope = replace(rope, freq_base=frequency_base(self.hparams, "rope.freq_base_swa", rope.freq_base))
        return rope


def clamped_swiglu(g: GraphBuilder, gate: Tensor, up: Tensor) -> Tensor:
    """``gate * sigmoid(1.702 gate) * (up + 1)``, with ``gate`` at most 7 and ``up`` between -7 and 7."""
    gate = g.clamp(gate, -float("inf"), 7.0)
    return gate * g.sigmoid(gate * 1.702) * g.scale(g.clamp(up, -7.0, 7.0), 1.0, 1.0)
