"""Command R and R+ (Cohere 2024), Command R7B, Command A (2025, arXiv:2504.00698)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import optional
from pumice.plugin.nn.decoder import LayerNormDecoder
from pumice.plugin.nn.hyper import is_sliding
from pumice.plugin.nn.rope import Rope


class CommandR(LayerNormDecoder):
    """Parallel attention and feed-forward blocks, norms without bias; Command R+ normalizes queries and keys."""

    neox = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.logit_scale = hparams.number("logit_scale", 0.0) or 1.0

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        h = self.norm(g, x, blk + "attn_norm")
        norm = self.norm if g.find_weight(f"{blk}attn_q_norm.weight") else None
        return x + (self.attention(g, h, blk, i, norm=norm) + self.feed_forward(g, h, blk, i))


class Cohere2(CommandR):
    """Sliding layers have positions; every fourth layer attends globally and has none."""

    scaled = CommandR.scaled | optional.FEED_FORWARD
    sliding_layers = 4

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        return super().rope(g, i) if is_sliding(self.hparams, i, period=4) else None
