"""LongCat-Flash (Meituan 2025, arXiv:2509.01322): latent attention, and experts beside two layers."""

from __future__ import annotations

from dataclasses import replace

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import rms_norm
from pumice.plugin.nn.experts import choose_experts, run_experts, without_idle
from pumice_architectures.deepseek2 import DeepSeek2

LATENT_EPS = 1e-6  # epsilon of the norms of compressed queries, keys and values


class LongCatFlash(DeepSeek2):
    """Pairs of layers share experts: they read what the first one's block reads, and are added after the second.

    Some experts return their input.
    """

    drafts = ""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_idle = hparams.get_int("expert_idle_count", 0)
        self.shortcut: Tensor | None = None  # results of the experts of the last pair

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return rms_norm(g, x, name, LATENT_EPS if name.endswith("_a_norm") else self.eps)

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        x = x + self.attention(g, self.norm(g, x, blk + "attn_norm"), blk, i)
        h = self.norm(g, x, blk + "ffn_norm")
        if i % 2 == 0:
            self.shortcut = self.mixture(g, h, blk, i)
        y = x + super(DeepSeek2, self).feed_forward(g, h, blk, i)
        return y if i % 2 == 0 or self.shortcut is None else y + self.shortcut

    def is_dense(self, i: int) -> bool:
        """Return True: experts are beside the layers."""
        return True

    def mixture(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Return the weighted sum of the experts; idle ones return ``x``."""
        experts = self.experts(i)
        ids, weights = choose_experts(g, x, blk, replace(experts, n_expert=experts.n_expert + self.n_idle))
        if not self.n_idle:
            return run_experts(g, x, blk, experts, ids, weights)
        ids, weights, idle = without_idle(g, blk, ids, weights, experts.n_expert, self.n_idle)
        return run_experts(g, x, blk, experts, ids, weights) + x * idle
