"""Qwen 1 (2023, arXiv:2309.16609), 2 and 2.5 (Yang et al. 2024, arXiv:2407.10671) and 3 (2025, arXiv:2505.09388).

Pangu Embedded (Huawei 2025) is built as Qwen 2.
"""

from __future__ import annotations

from pumice.plugin.nn import optional
from pumice.plugin.nn.decoder import Decoder


class Qwen(Decoder):
    """``feed_forward_length`` counts gate and up together."""

    def n_ff(self, i: int) -> int:
        return self.hparams.count("feed_forward_length", i, low=2) // 2


class Qwen2(Decoder):
    """Llama's layer with the other pairs in RoPE, and biases on queries, keys and values."""


class PanguEmbedded(Qwen2):
    unused = optional.ROPE_FACTORS


class Qwen3(Decoder):
    """Normalizes each head's queries and keys."""

    qk_norm = "before rope"
    scaled = Decoder.scaled | optional.FEED_FORWARD
    scores_are_probabilities = True
