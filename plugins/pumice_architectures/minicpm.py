"""MiniCPM 1 and 2 (Hu et al. 2024, arXiv:2404.06395), MiniCPM 3 (OpenBMB 2024) and PLM (Deng et al. 2025)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import optional
from pumice.plugin.nn.blocks import linear
from pumice.plugin.nn.decoder import ActivationName, FeedForward
from pumice.plugin.nn.latent import latent_attention
from pumice_architectures.epsilons import LatentNorms
from pumice_architectures.granite import Granite

EMBEDDING_SCALE, DEPTH_SCALE, BASE_WIDTH = 12.0, 1.4, 256  # same for all sizes; old files and MiniCPM 3's lack them


class MiniCPM(Granite):
    """Granite's graph. Without a key for it, logits are divided by ``256 / n_embd``, as in llama.cpp."""

    scales_media = False

    def __init__(self, hparams: HParams) -> None:
        constants = {
            "embedding_scale": EMBEDDING_SCALE,
            "residual_scale": DEPTH_SCALE / math.sqrt(hparams.positive("block_count")),
            "logit_scale": BASE_WIDTH / hparams.positive("embedding_length"),
        }
        old = {f"{hparams.architecture}.{key}": value for key, value in constants.items()}
        super().__init__(HParams(old | dict(hparams.metadata)))
        self.attention_scale = 0.0

    def has_positions(self, i: int) -> bool:
        return True


class PLM(LatentNorms):
    """Multi-head latent attention, and squared ReLU without a gate."""

    neox = False
    scaled = optional.ATTENTION_OUTPUT
    ffn: ClassVar[FeedForward] = "plain"
    activation: ClassVar[ActivationName] = "relu_squared"

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        heads = self.heads(i)
        q = self.queries(g, x, blk, heads.n_head * heads.k_dim).reshape(x.shape[0], heads.n_head, heads.k_dim)
        rank, rope = self.hparams.positive("attention.kv_lora_rank"), self.rope(g, i)
        y = latent_attention(g, x, q, blk, rank, heads.v_dim, rope or 0, norm=self.norm, scale=heads.k_dim**-0.5)
        return linear(g, y.reshape(x.shape[0], heads.n_head * heads.v_dim), blk + "attn_output", self.n_embd)

    def queries(self, g: GraphBuilder, x: Tensor, blk: str, n_out: int) -> Tensor:
        return linear(g, x, blk + "attn_q", n_out)


class MiniCPM3(PLM):
    """PLM with compressed queries, SwiGLU, and MiniCPM's multipliers."""

    neox = True
    ffn, activation = "gated", "silu"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.embedding_scale = EMBEDDING_SCALE
        self.residual_scale = DEPTH_SCALE / math.sqrt(self.n_layer)
        self.logit_scale = BASE_WIDTH / self.n_embd

    def queries(self, g: GraphBuilder, x: Tensor, blk: str, n_out: int) -> Tensor:
        compressed = linear(g, x, blk + "attn_q_a", self.hparams.positive("attention.q_lora_rank"))
        return linear(g, self.norm(g, compressed, blk + "attn_q_a_norm"), blk + "attn_q_b", n_out)
