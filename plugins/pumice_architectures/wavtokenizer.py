"""WavTokenizer's decoder (Ji et al. 2024, arXiv:2408.16532): audio codes to magnitudes and phases, per frame.

Its convolutions run over time in both directions.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from pumice.plugin import Architecture, GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import layer_norm, linear, width
from pumice.plugin.nn.places import neighbour

N_ZEROS = 8  # width of the zero queries and keys
RESIDUAL, ATTENTION, NORM = (0, 1, 3, 4), 2, 5  # numbers of the first blocks, by type


class WavTokenizer(Architecture):
    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.eps = hparams.number("attention.layer_norm_epsilon")
        self.group_eps = hparams.number("attention.group_norm_epsilon")
        self.n_group = hparams.positive("attention.group_norm_groups")
        self.n_features, self.n_ff = hparams.positive("features_length"), hparams.positive("feed_forward_length")
        self.n, self.n_first = hparams.positive("posnet.embedding_length"), hparams.positive("posnet.block_count")
        self.n_second = hparams.positive("convnext.block_count")
        if hparams.positive("convnext.embedding_length") != self.n or self.n % self.n_group:
            raise hparams.wrong("convnext.embedding_length", f"must be {self.n}, a multiple of {self.n_group} groups")
        if self.n_first > NORM + 1:
            raise hparams.wrong("posnet.block_count", f"is {self.n_first}, expected {NORM + 1}")

    def build(self, g: GraphBuilder) -> None:
        x = g.embedding(
            g.weight("token_embd.weight", (int(g.weight("token_embd.weight").shape[0]), self.n_features)), g.tokens
        )
        x = self.conv(g, x, "conv1d", self.n, 7)
        for i in range(self.n_first):
            x = self.first_block(g, x, f"posnet.{i}.", i)
        x = layer_norm(g, x, "token_embd_norm", self.eps)
        for i in range(self.n_second):
            x = self.second_block(g, x, f"convnext.{i}.")
        x = layer_norm(g, g.get_rows(x, g.output_ids), "output_norm", self.eps)
        g.output("hidden", linear(g, x, "output", self.n_embd))

    def first_block(self, g: GraphBuilder, x: Tensor, name: str, i: int) -> Tensor:
        if i in RESIDUAL:
            h = x
            for step in "12":
                h = self.conv(g, g.silu(self.group_norm(g, h, f"{name}norm{step}")), f"{name}conv{step}", self.n, 3)
            return x + h
        h = self.group_norm(g, x, f"{name}attn_norm")
        return h if i == NORM else x + self.attention(g, h, name)

    def second_block(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Apply a one-dimensional ConvNeXt block (Liu et al. 2022, arXiv:2201.03545)."""
        taps = g.weight(f"{name}dw.weight")
        shape = (int(taps.shape[-1]), self.n)
        kernel = g.derived(f"{name}dw, by taps", shape, lambda w: w.reshape(self.n, -1).T, taps)
        h = g.sum(self.neighbours(g, x, shape[0]) * kernel, axis=-2) + g.weight(f"{name}dw.bias", (self.n,))
        h = layer_norm(g, h, f"{name}norm", self.eps)
        h = linear(g, g.gelu(linear(g, h, f"{name}pw1", self.n_ff)), f"{name}pw2", self.n)
        return x + h * g.weight(f"{name}gamma.weight", (self.n,))

    def attention(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        q, k, v = (
            self.linear(g, x, f"{name}attn_{projection}").reshape(x.shape[0], 1, self.n)
            for projection in ("q", "k", "v")
        )
        y = g.attention(q, k, v, scale=self.n**-0.5, causal=False, cache=False)
        return self.linear(g, y.reshape(x.shape[0], self.n), f"{name}attn_output")

    def linear(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Apply a convolution of one tap."""
        return g.linear(x, g.weight(f"{name}.weight", (self.n, self.n)), g.weight(f"{name}.bias", (self.n,)))

    def conv(self, g: GraphBuilder, x: Tensor, name: str, n_out: int, n_taps: int) -> Tensor:
        """Apply a convolution over time that mixes channels, with zero padding."""
        n = n_taps * width(x)
        weight = g.weight(f"{name}.weight", (n_out, width(x), n_taps))
        matrix = g.derived(f"{name}, by taps", (n_out, n), lambda w: w.transpose(0, 2, 1).reshape(n_out, n), weight)
        taken = self.neighbours(g, x, n_taps).reshape(x.shape[0], n)
        return g.linear(taken, matrix, g.weight(f"{name}.bias", (n_out,)))

    def neighbours(self, g: GraphBuilder, x: Tensor, n_taps: int) -> Tensor:
        """Return ``[t, n_taps, n]``: each token with its neighbours on both sides, zero beyond the ends."""
        taken = reduce(g.concat, [neighbour(g, x, place - n_taps // 2) for place in range(n_taps)])
        return taken.reshape(x.shape[0], n_taps, width(x))

    def group_norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Apply group norm over a whole text (Wu and He 2018, arXiv:1803.08494)."""
        grouped = x.reshape(x.shape[0], self.n_group, self.n // self.n_group)
        centred = grouped + self.mean(g, grouped, f"{name}, mean") * -1.0
        variance = g.scale(self.mean(g, centred * centred, f"{name}, variance"), 1.0, self.group_eps)
        y = (centred / g.sqrt(variance)).reshape(*x.shape)
        return y * g.weight(f"{name}.weight", (self.n,)) + g.weight(f"{name}.bias", (self.n,))

    def mean(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Return the mean over a text of each group ``[t, groups, n]`` as ``[t, groups, 1]``, by uniform attention."""
        means = g.sum(x, axis=-1) * (1 / width(x))
        q, k = (self.nothing(g, means, 1, f"{name}, {side}") for side in ("asked", "asking"))
        v = means.reshape(x.shape[0], 1, self.n_group)
        y = g.attention(q, k, v, scale=1.0, causal=False, cache=False)
        return y.reshape(x.shape[0], self.n_group, 1)

    def nothing(self, g: GraphBuilder, x: Tensor, n_head: int, name: str) -> Tensor:
        """Return queries or keys of zeros ``[t, n_head, N_ZEROS]``."""
        n = n_head * N_ZEROS
        return g.linear(g.slice(x, 0, 1), g.constant(name, np.zeros((n, 1)))).reshape(x.shape[0], n_head, N_ZEROS)
