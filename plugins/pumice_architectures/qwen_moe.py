"""Qwen with experts: 1.5-MoE, 2 (Yang et al. 2024, arXiv:2407.10671), 3 (2025, arXiv:2505.09388), 3 VL's text model."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from pumice.plugin import GraphBuilder, HParams, MediaRules
from pumice.plugin.nn import optional
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.experts import Width
from pumice.plugin.nn.rope import Rope, rope_axes, rope_sections

MOST_DEEPSTACK = 64  # published models have 3


def n_deepstack(hparams: HParams) -> int:
    """Return the layers after which further embeddings of images are added; a model may have fewer layers."""
    key = "n_deepstack_layers"
    n = hparams.get_int(key, 0)
    if not 0 <= n <= MOST_DEEPSTACK:
        raise hparams.wrong(key, f"is {n}, expected 0 to {MOST_DEEPSTACK}")
    return n


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


class Qwen3VLMoE(Qwen3MoE):
    scaled = ExpertDecoder.scaled

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        axes = rope_axes(hparams, self.heads(0).k_dim // 2, interleaved=True)
        self.media_rules = MediaRules(axes, n_deepstack(hparams))

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        return rope and replace(rope, sections=rope_sections(self.hparams), interleaved=True)
