"""MPT (MosaicML 2023) and Replit Code."""

from __future__ import annotations

from functools import partial
from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import feed_forward, learned_positions, norm_all_heads
from pumice.plugin.nn.decoder import LayerNormDecoder
from pumice.plugin.nn.hyper import alibi_slopes


class MPT(LayerNormDecoder):
    """ALiBi, learned positions, or both; queries, keys and values may be clamped, or normalized over all heads."""

    rope_layers = "none"

    def embed(self, g: GraphBuilder) -> Tensor:
        x = super().embed(g)
        learned = g.find_weight("position_embd.weight")
        return x + learned_positions(g, self.n_ctx_train, self.n_embd) if learned else x

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        if g.find_weight(f"{blk}attn_q_norm.weight"):
            options["norm"] = partial(norm_all_heads, norm=self.norm)
        slopes = alibi_slopes(self.heads(i).n_head, self.hparams.number("attention.max_alibi_bias", 0.0))
        clamp = self.hparams.number("attention.clamp_kqv", 0.0)
        return super().attention(g, x, blk, i, slopes=slopes, clamp=clamp, **options)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        n_ff = self.n_ff(i)
        scales = g.find_weight(f"{blk}ffn.act.scales", (n_ff,))  # scales from AWQ (Lin et al. 2023, arXiv:2306.00978)
        return feed_forward(g, x, blk, n_ff, lambda y: g.gelu(y) / scales if scales else g.gelu(y))
