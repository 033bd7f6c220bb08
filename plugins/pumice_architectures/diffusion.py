"""Masked diffusion: Dream (Ye et al. 2025, arXiv:2508.15487) and LLaDA (Nie et al. 2025, arXiv:2502.09992)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.decoder import Decoder


class Dream(Decoder):
    """Qwen 2's layer. Every position sees every other, so that nothing can be cached."""

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        return super().attention(g, x, blk, i, causal=False, cache=False, **options)


class LLaDA(Dream):
    neox = False
