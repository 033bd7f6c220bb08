"""Qwen with experts: 1.5-MoE, 2 (Yang et al. 2024, arXiv:2407.10671) and 3 (2025, arXiv:2505.09388)."""

from __future__ import annotations

from typing import ClassVar

from pumice.plugin.nn import optional
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.experts import Width


class Qwen2MoE(ExpertDecoder):
    """Biases of queries, keys and values; a gated shared expert."""

    normalize = False
    shared_is_gated = True
    expert_width = "divided"

    def shared_width(self, i: int) -> int:
        return self.hparams.count("expert_shared_feed_forward_length", i, default=0, low=0) or self.n_ff(i)


class Qwen3MoE(ExpertDecoder):
    """Queries and keys are normalized per head."""

    qk_norm = "before rope"
    scaled = ExpertDecoder.scaled | optional.EXPERTS
    expert_width: ClassVar[Width] = "divided"
