"""GPT-Neo (Black et al. 2021)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice_architectures.gpt2 import GPT2


class GPTNeo(GPT2):
    """GPT-2 with sliding windows in some layers, and unscaled scores."""

    sliding_layers = "listed"

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        return super().attention(g, x, blk, i, scale=1.0, **options)
