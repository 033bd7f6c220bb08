"""Latent attention with an indexer: DeepSeek V3.2 (DeepSeek-AI 2025, arXiv:2512.02556) and GLM 5 (Z.ai 2026).

A token attends to the positions that an indexer ranks highest. Where the context has no more than these, that is all
of them, and the indexer is not asked.
"""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams, ModelError, Tensor
from pumice_architectures.deepseek2 import DeepSeek2


class DeepSeek32(DeepSeek2):
    ffn_scales = True
    gate = ""
    mscale_is_for_all = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        if not self.is_absorbed:
            raise hparams.wrong("attention.key_length_mla", "is missing or 0: the model attends to latents")
        self.n_positions = hparams.positive("attention.indexer.top_k")

    def build(self, g: GraphBuilder) -> Tensor | None:
        if g.n_ctx > self.n_positions:
            raise ModelError(
                f"{self.hparams.architecture} attends to chosen positions beyond a context of {self.n_positions}, "
                f"which is not supported: use n_ctx={self.n_positions} or less"
            )
        return super().build(g)


class GLMDSA(DeepSeek32):
    gate = "sigmoid"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.mscale_all_dim = 0.0

    def sharpen(self, g: GraphBuilder, q: Tensor) -> Tensor:
        return q
