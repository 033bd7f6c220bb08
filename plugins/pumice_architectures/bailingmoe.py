"""Ling and Ring (inclusionAI 2025, arXiv:2503.05139), 1 and 2."""

from __future__ import annotations

from dataclasses import replace

from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.hyper import Heads


class BailingMoE(ExpertDecoder):
    """RoPE rotates whole heads; every layer has experts, whatever the file's number of dense layers."""

    neox = False
    normalize = None
    shared = "expert_shared_count"

    def heads(self, i: int) -> Heads:
        heads = super().heads(i)
        n_rot = self.hparams.get_int("rope.dimension_count", heads.k_dim)
        return replace(heads, k_dim=n_rot, v_dim=n_rot)

    def is_dense(self, i: int) -> bool:
        return False


class BailingMoE2(ExpertDecoder):
    """Queries and keys are normalized per head; experts routed as in DeepSeek V3."""

    qk_norm = "before rope"
    gate, gate_of_file = "", True
    normalize = None

    def shared_width(self, i: int) -> int:
        width = self.hparams.count("expert_shared_feed_forward_length", i, default=0, low=0) or self.experts(i).n_ff
        return width * self.hparams.count("expert_shared_count", i, low=0)
