"""Gemma (2024, arXiv:2403.08295), Gemma 2 (2024, arXiv:2408.00118) and Gemma 3 (2025, arXiv:2503.19786).

Their RMSNorm multiplies by ``1 + weight``; GGUF files store the sum.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.encoder import Encoder
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope, frequency_base
from pumice.plugin.unstable import MediaRules


class Gemma(Decoder):
    activation = "gelu"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.embedding_scale = math.sqrt(self.n_embd)
        self.media_rules = MediaRules(scales=True)


class Gemma2(Gemma):
    """Norms before and after each block, sliding windows in every other layer, soft caps on scores and logits."""

    norms_after = ("post_attention_norm", "post_ffw_norm")
    period = 2
    default_window = 4096
    n_layer_27b = 46  # only this size scales attention by the model's width per head
    logit_softcap = 30.0

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        scale, cap = self.attention_scale(i), self.score_softcap()
        return super().attention(g, x, blk, i, scale=scale, softcap=cap, **options)

    def attention_scale(self, i: int) -> float:
        heads = self.heads(i)
        width = self.n_embd // heads.n_head if self.n_layer == self.n_layer_27b else heads.k_dim
        return self.hparams.number("attention.scale", 0.0) or width**-0.5

    def window(self, i: int) -> int:
        return sliding_window(self.hparams, self.default_window) if is_sliding(self.hparams, i, self.period) else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        return self.sliding_rope(rope) if rope and self.window(i) else rope

    def sliding_rope(self, rope: Rope) -> Rope:
        return replace(rope, freq_base=frequency_base(self.hparams, "rope.freq_base_swa", rope.freq_base))

    def score_softcap(self) -> float:
        return self.hparams.number("attn_logit_softcapping", 50.0)


class Gemma3(Gemma2):
    """Normalized queries and keys, uncapped scores; sliding layers use unscaled RoPE with a base of their own."""

    qk_norm = "before rope"
    period = 6
    default_window = 0
    n_layer_27b = 62
    logit_softcap = 0.0

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.media_rules = MediaRules(both_ways=("image",))

    def sliding_rope(self, rope: Rope) -> Rope:
        base = frequency_base(self.hparams, "rope.freq_base_swa")
        return replace(rope, freq_base=base, freq_scale=1.0, attn_factor=1.0)

    def score_softcap(self) -> float:
        return 0.0


class GemmaEmbedding(Encoder, Gemma3):
    """EmbeddingGemma (2025, arXiv:2509.20354): bidirectional attention, windows centred on a token."""

    n_layer_27b = 0  # no such size

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.causal = False


class VaultGemma(Gemma2):
    """VaultGemma (2025, arXiv:2510.15001): Gemma 2 without norms after the blocks."""

    norms_after = ("", "")
    n_layer_27b = 0  # no such size
