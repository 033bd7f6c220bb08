"""Masked diffusion: Dream (Ye et al. 2025, arXiv:2508.15487), LLaDA (Nie et al. 2025, arXiv:2502.09992), RND1."""

from __future__ import annotations

from pumice.plugin import HParams
from pumice.plugin.nn.decoder import Decoder
from pumice_architectures.qwen_moe import Qwen3MoE


class Dream(Decoder):
    """Qwen 2's layer. Every position sees every other, so that nothing can be cached."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.causal = False  # whatever the file says


class LLaDA(Dream):
    neox = False


class RND1(Qwen3MoE):
    ffn_scales = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.causal = False


class LLaDAMoE(RND1):
    normalize = False
