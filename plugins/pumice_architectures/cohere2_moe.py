"""Cohere 2 with experts (2026)."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import optional
from pumice.plugin.nn.blocks import layer_norm, rms_norm
from pumice.plugin.nn.expert_decoder import ExpertDecoder
from pumice.plugin.nn.hyper import is_sliding, sliding_window
from pumice.plugin.nn.rope import Rope

EPS_KEYS = ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon")


class Cohere2MoE(ExpertDecoder):
    """Parallel attention and feed-forward blocks; only sliding layers and dense layers have positions.

    The norm is RMSNorm or LayerNorm, depending on which epsilon the file has. Shared and routed experts have equal
    weight.
    """

    drafts = "after norm"
    neox = False
    scaled = ExpertDecoder.scaled | optional.FEED_FORWARD | optional.EXPERTS | optional.SHARED
    gate, gate_of_file = "sigmoid", True
    normalize = None

    def __init__(self, hparams: HParams) -> None:
        rms = hparams.number(EPS_KEYS[0], 0.0) > 0
        self.eps_key, self.norm_block = (EPS_KEYS[0], rms_norm) if rms else (EPS_KEYS[1], layer_norm)
        super().__init__(hparams)
        self.logit_scale = hparams.number("logit_scale") or 1.0

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return self.norm_block(g, x, name, self.eps)

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        h = self.norm(g, x, blk + "attn_norm")
        y = self.feed_forward(g, h, blk, i)
        if not self.is_dense(i) and self.shared_width(i):
            y = y * 0.5
        return x + (self.attention(g, h, blk, i) + y)

    def window(self, i: int) -> int:
        if i >= self.n_layer:  # a draft layer
            return 0
        return sliding_window(self.hparams, None) if is_sliding(self.hparams, i, period=4, first_global=True) else 0

    def rope(self, g: GraphBuilder, i: int) -> Rope | None:
        return super().rope(g, i) if self.window(i) or self.is_dense(i) or i >= self.n_layer else None

    def shared_width(self, i: int) -> int:
        n_shared = self.hparams.count("expert_shared_count", i, default=0, low=0)
        n_ff = self.hparams.count("expert_shared_feed_forward_length", i, default=0, low=0)
        return (n_ff or n_shared * self.experts(i).n_ff) if n_shared else 0
