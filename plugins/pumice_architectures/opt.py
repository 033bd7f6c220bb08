"""OPT (Zhang et al. 2022, arXiv:2205.01068) and its kin.

BioGPT (Luo et al. 2022, arXiv:2210.10341) and XGLM (Lin et al. 2021, arXiv:2112.10668).
"""

from __future__ import annotations

import math
from typing import ClassVar

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.nn.decoder import ActivationName, LayerNormDecoder


class OPT(LayerNormDecoder):
    """Learned positions and ReLU. The 350M model has norms after the blocks, and embeddings of another width."""

    eps_key = "attention.layer_norm_epsilon"
    rope_layers = "none"
    ffn = "plain"
    activation: ClassVar[ActivationName] = "relu"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.late_norms = hparams.get_bool("late_norms", False)
        self.n_embd_tokens = hparams.get_int("embedding_length_tokens", self.n_embd)

    def embed(self, g: GraphBuilder) -> Tensor:
        x = blocks.embedding(g, self.n_embd_tokens) * self.embedding_scale
        if self.n_embd_tokens != self.n_embd:
            x = blocks.linear(g, x, "token_embd_in", self.n_embd)
        return x + blocks.learned_positions(g, self.n_ctx_train, self.n_embd)

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        if not self.late_norms:
            return super().layer(g, x, blk, i)
        x = self.norm(g, x + self.attention(g, x, blk, i), blk + "attn_norm")
        return self.norm(g, x + self.feed_forward(g, x, blk, i), blk + "ffn_norm")

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        x = g.get_rows(x, g.output_ids)
        x = x if self.late_norms else self.norm(g, x, "output_norm")
        if self.n_embd_tokens != self.n_embd:
            x = blocks.linear(g, x, "token_embd_out", self.n_embd_tokens)
        return blocks.output_head(g, x)


class BioGPT(OPT):
    """Scaled embeddings, and GELU by its approximation. XGLM's file has sinusoids as its table of positions."""

    activation = "gelu"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.embedding_scale = math.sqrt(self.n_embd) if hparams.get_bool("embedding_scaled", True) else 1.0
