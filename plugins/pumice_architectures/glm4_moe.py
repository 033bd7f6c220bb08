"""GLM 4.5 to 4.7 (Zeng et al. 2025, arXiv:2508.06471)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.rope import Rope, optional_rope_axes, rope_sections
from pumice.plugin.unstable import MediaRules


class GLM4MoE(ExpertDecoder):
    """The larger models normalize queries and keys per head; experts routed as in DeepSeek V3."""

    drafts = "after norm"
    norms_before = ("attn_norm", "post_attention_norm")
    gate, gate_of_file = "sigmoid", True
    normalize = None
    shared = "expert_shared_count"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.media_rules = MediaRules(optional_rope_axes(hparams, self.heads(0).k_dim))

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        norm = self.norm if g.find_weight(f"{blk}attn_q_norm.weight") else None
        return super().attention(g, x, blk, i, norm=norm, **options)

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope, sections = super().rope(g, i), rope_sections(self.hparams, default=())
        return replace(rope, sections=sections) if rope and min(sections[:2], default=0) > 0 else rope
