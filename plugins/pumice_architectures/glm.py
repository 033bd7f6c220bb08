"""ChatGLM 2 and 3, GLM-4 (Zeng et al. 2024, arXiv:2406.12793), GLM-4-0414, GLM-Z1 and GLM-4.1V's text model."""

from __future__ import annotations

from dataclasses import replace

from pumice.plugin import GraphBuilder, HParams
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.rope import Rope, optional_rope_axes, rope_sections
from pumice.plugin.unstable import MediaRules


class ChatGLM(Decoder):
    """Llama with fused matrices; RoPE rotates half of each head."""

    neox = False
    ffn = "fused"


class GLM4(ChatGLM):
    """Norms before and after each block."""

    norms_after = ("post_attention_norm", "post_ffw_norm")

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.media_rules = MediaRules(optional_rope_axes(hparams, self.heads(0).k_dim))

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope, sections = super().rope(g, i), rope_sections(self.hparams, default=())
        has_sections = rope and min(sections[:2], default=0) > 0  # a multimodal model, with pairs in halves
        return replace(rope, sections=sections, neox=True) if rope and has_sections else rope
