"""Llama (2023, arXiv:2302.13971) and models with its graph: Mistral, Mixtral (2024, arXiv:2401.04088), Ministral 3."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn import optional
from pumice.plugin.nn.blocks import temperature
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.encoder import Encoder
from pumice.plugin.nn.experts import mixture_of_experts, n_expert, read_experts
from pumice.plugin.nn.rope import Rope, original_context, read_rope


class Llama(Decoder):
    neox = False
    sliding_layers = "all"
    scaled = Decoder.scaled | optional.FEED_FORWARD | optional.EXPERTS

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        if n_expert(self.hparams):
            return mixture_of_experts(g, x, blk, read_experts(self.hparams, i))
        return super().feed_forward(g, x, blk, i)


class PlainLlama(Decoder):
    """Llama's graph for families without experts and scales in the feed-forward block."""

    neox = False


class Mistral3(Llama):
    """Llama with all parameters of YaRN, and an attention temperature beyond the original context."""

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        beta = self.hparams.number("attention.temperature_scale", 0.0)
        factors = temperature(g, beta, original_context(self.hparams))
        return super().attention(g, x, blk, i, temperature=factors, **options)

    def rope(self, g: GraphBuilder, i: int) -> Rope:
        return read_rope(
            self.hparams,
            g,
            self.heads(i).k_dim,
            neox=self.neox,
            mscale_all_dim=self.hparams.number("rope.scaling.yarn_log_multiplier", 0.0),
        )


class LlamaEmbed(Encoder, Llama):
    """Llama as an encoder (Llama Embed Nemotron, 2025, arXiv:2511.07025)."""

    unused = frozenset({"output.weight"})
