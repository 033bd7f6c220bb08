"""Chameleon (Meta 2024, arXiv:2405.09818)."""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import layer_norm, width
from pumice.plugin.nn.decoder import Decoder

QK_EPS = 1e-5
IMAGE_TOKENS = slice(4, 8196)  # ids of images, excluded from text


class Chameleon(Decoder):
    """LayerNorm of queries and keys with weights per head; in the 34B model the other norms follow the blocks."""

    neox = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.swin_norm = hparams.get_bool("swin_norm", False)

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        if not self.swin_norm:
            return super().layer(g, x, blk, i)
        h = self.norm(g, self.attention(g, x, blk, i), blk + "attn_norm")  # as in llama.cpp, without the residual
        return x + h + self.norm(g, self.feed_forward(g, h, blk, i), blk + "ffn_norm")

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        return super().attention(g, x, blk, i, norm=lambda g, q, name: layer_norm(g, q, name, QK_EPS), **options)

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        logits = super().head(g, x)
        never = np.zeros(width(logits), np.float32)
        never[IMAGE_TOKENS] = np.finfo(np.float32).min
        return logits + g.constant("image_tokens", never)
