"""Hunyuan with experts: A13B (Tencent 2025) and Hunyuan 3."""

from __future__ import annotations

from pumice.plugin.nn import optional
from pumice.plugin.nn.expert_decoder import ExpertDecoder


class HunyuanMoE(ExpertDecoder):
    """Queries and keys are normalized per head after RoPE."""

    qk_norm = "after rope"
    expert_width = "feed_forward_length"

    def is_dense(self, i: int) -> bool:
        return False

    def shared_width(self, i: int) -> int:
        return self.hparams.count("expert_shared_feed_forward_length", i, default=0, low=0) or self.n_ff(i)


class HunyuanV3(ExpertDecoder):
    """Experts routed as in DeepSeek V3, in layers with a router."""

    drafts = "after norm"
    qk_norm = "before rope"
    scaled = ExpertDecoder.scaled | optional.FEED_FORWARD | optional.EXPERTS | optional.SHARED
    gate, gate_of_file = "sigmoid", True
    dense_without_router = True
    normalize = None

    def shared_width(self, i: int) -> int:
        return self.hparams.count("expert_shared_feed_forward_length", i, default=0, low=0) or self.experts(i).n_ff
