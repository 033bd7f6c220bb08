"""Spark X2.5 (iFLYTEK 2026)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import attention_gate, gated_feed_forward
from pumice.plugin.nn.decoder import Decoder
from pumice.plugin.nn.hyper import listed_window
from pumice.plugin.nn.rope import Rope, sliding_rope


class Spark25(Decoder):
    """A gate per head, sliding windows, GELU in the feed-forward block."""

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        finish = attention_gate(g, x, blk, self.heads(i), g.sigmoid)
        return super().attention(g, x, blk, i, finish=finish, **options)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return gated_feed_forward(g, x, blk, self.n_ff(i), g.gelu)

    def window(self, i: int) -> int:
        return listed_window(self.hparams, i)

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        rope = super().rope(g, i)
        return sliding_rope(self.hparams, rope, self.heads(i).k_dim) if rope and self.window(i) else rope
