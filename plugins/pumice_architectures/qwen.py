"""Qwen 1 (2023, arXiv:2309.16609), 2 and 2.5 (Yang et al. 2024, arXiv:2407.10671) and 3 (2025, arXiv:2505.09388).

Pangu Embedded (Huawei 2025) has the layers of Qwen 2.
"""

from __future__ import annotations

from pumice.plugin.nn import optional
from pumice.plugin.nn.decoder import Decoder


class Qwen(Decoder):
    """``feed_forward_length`` is the sum of the widths of gate and up."""

    def n_ff(self, i: int) -> int:
        return self.hparams.count("feed_forward_length", i, low=2) // 2


class Qwen2(Decoder):
    """Llama's layer with RoPE pairs in halves, and biases of queries, keys and values."""


class PanguEmbedded(Qwen2):
    unused = optional.ROPE_FACTORS


class Qwen3(Decoder):
    """Queries and keys are normalized per head."""

    qk_norm = "before rope"
    scaled = Decoder.scaled | optional.FEED_FORWARD
    scores_are_probabilities = True
