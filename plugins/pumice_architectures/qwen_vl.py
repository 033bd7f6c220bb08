"""The text models of Qwen 2 VL (Wang et al. 2024, arXiv:2409.12191), Qwen 3 VL, Qwen 3 TTS and PaddleOCR-VL."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pumice.plugin import GraphBuilder, HParams, ModelError, Tensor
from pumice.plugin.nn.blocks import linear, n_vocab
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.rope import Rope, optional_rope_axes, rope_axes, rope_sections
from pumice.plugin.unstable import MediaRules
from pumice_architectures.qwen import Qwen2, Qwen3
from pumice_architectures.qwen_moe import Qwen3MoE

N_CODES = 3072  # audio codes of Qwen 3 TTS, the last ids of its vocabulary
MOST_DEEPSTACK = 64  # published models have 3


class Qwen2VL(Qwen2):
    unused = frozenset({"output.bias"})

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.media_rules = MediaRules(rope_axes(hparams, self.heads(0).k_dim // 2, interleaved=False))

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        return rope and replace(rope, sections=rope_sections(self.hparams))


class PaddleOCR(Qwen2):
    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.media_rules = MediaRules(optional_rope_axes(hparams, self.heads(0).k_dim))

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        return rope and replace(rope, sections=rope_sections(self.hparams, default=()))


class Qwen3Vision(Decoder):
    """Interleaved M-RoPE, and embeddings of images that are added after the first layers (DeepStack)."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        axes = rope_axes(hparams, self.heads(0).k_dim // 2, interleaved=True)
        self.media_rules = MediaRules(axes, tuple(range(n_deepstack(hparams))))


class Qwen3VL(Qwen3Vision, Qwen3):
    scaled = Qwen2.scaled


class Qwen3VLMoE(Qwen3Vision, Qwen3MoE):
    scaled = ExpertDecoder.scaled


def n_deepstack(hparams: HParams) -> int:
    """Return the layers after which further embeddings of images are added; a model may have fewer layers."""
    key = "n_deepstack_layers"
    n = hparams.get_int(key, 0)
    if not 0 <= n <= MOST_DEEPSTACK:
        raise hparams.wrong(key, f"is {n}, expected 0 to {MOST_DEEPSTACK}")
    return n


class Qwen3TTS(Qwen3VL):
    """The talker: its head returns logits of audio codes only."""

    speaks_tokens = True

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        x = self.norm(g, g.get_rows(x, g.output_ids), "output_norm")
        g.output("hidden", x)
        codes = linear(g, x, "output", N_CODES)
        n_text = n_vocab(g) - N_CODES
        if n_text < 0:
            raise ModelError(f"tensor token_embd.weight has fewer rows than the {N_CODES} audio codes")
        if not n_text:
            return codes
        never = g.constant("text.weight", np.zeros((n_text, 1))), g.constant("text.bias", np.full(n_text, -np.inf))
        return g.concat(g.linear(g.slice(codes, 0, 1), *never), codes)
