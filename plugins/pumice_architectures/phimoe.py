"""Phi-3.5-MoE and Phi-mini-MoE (Abdin et al. 2024, arXiv:2404.14219; Li et al. 2025, arXiv:2506.18349)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.expert_decoder import ExpertDecoder


class PhiMoE(ExpertDecoder):
    """RMSNorm with a bias, as in llama.cpp; the model was trained with LayerNorm."""

    expert_width = "feed_forward_length"

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return super().norm(g, x, name) + g.weight(f"{name}.bias", (self.n_embd,))
