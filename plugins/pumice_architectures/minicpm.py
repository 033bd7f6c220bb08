"""MiniCPM 1 and 2 (Hu et al. 2024, arXiv:2404.06395)."""

from __future__ import annotations

import math

from pumice.plugin import HParams
from pumice_architectures.granite import Granite


class MiniCPM(Granite):
    """Granite's graph. Old files lack the constants, which are then the 2B model's, as llama.cpp has them."""

    def __init__(self, hparams: HParams) -> None:
        constants = {
            "embedding_scale": 12.0,
            "residual_scale": 1.4 / math.sqrt(hparams.positive("block_count")),
            "logit_scale": 256 / hparams.positive("embedding_length"),
        }
        old = {f"{hparams.architecture}.{key}": value for key, value in constants.items()}
        super().__init__(HParams(old | dict(hparams.metadata)))
        self.attention_scale = 0.0

    def has_positions(self, i: int) -> bool:
        return True
