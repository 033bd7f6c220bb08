"""Lara Mini (Translated 2026)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import mixture_of_experts, read_experts, recurrent, shared_expert
from pumice_architectures.qwen_next import Qwen3Next, separate_alpha_beta


class LaraMini(Qwen3Next):
    """Gated delta nets, sliding windows, and whole layers without positions; attention has no gate."""

    qk_norm = "before rope"
    sliding_layers = "listed"
    rope_layers = "sliding"

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        return recurrent.Hybrid.attention(self, g, x, blk, i, **options)

    def alpha_beta(self, g: GraphBuilder, x: Tensor, blk: str) -> tuple[Tensor, Tensor]:
        return separate_alpha_beta(g, x, blk, self.n_value_heads)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        n_ff = self.hparams.count("expert_shared_feed_forward_length", i)
        return mixture_of_experts(g, x, blk, read_experts(self.hparams, i)) + shared_expert(g, x, blk, n_ff)
