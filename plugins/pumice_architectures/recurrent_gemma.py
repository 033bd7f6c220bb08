"""RecurrentGemma (Botev et al. 2024, arXiv:2404.07839): Griffin's recurrent units, and local attention."""

from __future__ import annotations

import math

import numpy as np

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import recurrent, sliding_window
from pumice.plugin.nn.blocks import linear


class RecurrentGemma(recurrent.Hybrid):
    activation = "gelu"
    logit_softcap = 0.0

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.embedding_scale = math.sqrt(self.n_embd)
        self.n_state = hparams.positive("ssm.inner_size")
        self.first: Tensor | None = None  # 1 for the first token of a text, 0 for others

    def embed(self, g: GraphBuilder) -> Tensor:
        is_first = np.zeros(g.n_ctx)
        is_first[0] = 1.0
        self.first = g.embedding(g.constant("first position", is_first), g.positions).reshape(g.tokens.shape[0], 1)
        return super().embed(g)

    def window(self, i: int) -> int:
        return sliding_window(self.hparams, None)

    def mixer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """A convolution and a real-gated linear recurrent unit (De et al. 2024, arXiv:2402.19427, section 2.4)."""
        n = self.n_state
        gate, h = g.gelu(linear(g, x, blk + "attn_gate", n)), linear(g, x, blk + "ssm_in", n)
        taps = g.weight(f"{blk}ssm_conv1d.weight", (n, self.hparams.positive("ssm.conv_kernel")))
        h = g.conv1d(h, taps, g.weight(f"{blk}ssm_conv1d.bias", (n,)))
        step, a = self.opened(g, h, blk + "ssm_dt"), g.weight(f"{blk}ssm_a", (n,))
        decay = g.exp(step * a)
        magnitude = g.sqrt(g.clamp(g.scale(decay * decay, -1.0, 1.0), 0.0, 1.0))
        assert self.first is not None
        magnitude = magnitude + g.scale(magnitude, -1.0, 1.0) * self.first  # 1 for the first token
        ones = g.scale(g.slice(x, 0, 1), 0.0, 1.0)
        inputs = h * self.opened(g, h, blk + "ssm_x") * magnitude / step  # which the scan multiplies by the step
        no_skip = g.constant(f"{blk}no skip", np.zeros(n))
        y = g.ssm_scan(inputs, step, g.weight(f"{blk}ssm_a", (n, 1)), ones, ones, no_skip)
        return linear(g, y * gate, blk + "ssm_out", self.n_embd)

    def opened(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Return the sigmoid of a matrix and bias for each block of channels."""
        n_block = self.hparams.positive("ssm.group_count")
        d = self.n_state // n_block
        y = g.batched_linear(x.reshape(x.shape[0], n_block, d), g.weight(f"{name}.weight", (n_block, d, d)))
        return g.sigmoid(y + g.weight(f"{name}.bias", (n_block, d))).reshape(*x.shape)
