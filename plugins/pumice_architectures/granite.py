"""Granite 3, dense and with experts (IBM 2024)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import gated_feed_forward
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.experts import mixture_of_experts, n_expert, read_experts
from pumice.plugin.nn.rope import Rope


class Granite(Decoder):
    """Llama with constants on the embeddings, attention, residual stream and logits. A constant of 0 is unset."""

    neox = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.embedding_scale = hparams.number("embedding_scale", 0.0) or 1.0
        self.attention_scale = hparams.number("attention.scale", 0.0)
        self.residual_scale = hparams.number("residual_scale", 0.0) or 1.0
        self.logit_scale = hparams.number("logit_scale")
        if self.logit_scale == 0:
            raise hparams.wrong("logit_scale", "is 0, but logits are divided by it")

    def embed(self, g: GraphBuilder) -> Tensor:
        return super().embed(g) * self.embedding_scale

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        h = self.attention(g, self.norm(g, x, blk + "attn_norm"), blk, i, scale=self.attention_scale)
        x = x + h * self.residual_scale
        h = self.feed_forward(g, self.norm(g, x, blk + "ffn_norm"), blk, i)
        return x + h * self.residual_scale

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        if not n_expert(self.hparams):
            return super().feed_forward(g, x, blk, i)
        y = mixture_of_experts(g, x, blk, read_experts(self.hparams, i))
        n_ff = self.hparams.count("expert_shared_feed_forward_length", i, default=0, low=0)
        return y + gated_feed_forward(g, x, blk, n_ff, g.silu, suffix="_shexp") if n_ff else y

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        return super().head(g, x) * (1 / self.logit_scale)

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        has_positions = self.hparams.get_bool("rope.scaling.finetuned", True)  # how GGUF says it for this family
        return super().rope(g, i) if has_positions else None
