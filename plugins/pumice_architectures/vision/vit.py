"""The vision transformer (Dosovitskiy et al. 2020, arXiv:2010.11929) that CLIP, SigLIP and their relatives share."""

from __future__ import annotations

import math

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, MediaEncoder, Tensor
from pumice.plugin.nn import blocks


def gelu_erf(g: GraphBuilder, x: Tensor) -> Tensor:
    """Return ``x/2 * (1 + erf(x / sqrt(2)))``, with erf to 1.5e-7 (Abramowitz and Stegun 1964, formula 7.1.26)."""
    positive = g.relu(x)
    size = positive + g.relu(x * -1.0)
    z = size * 2**-0.5
    t = g.div(g.scale(z, 0.0, 1.0), g.scale(z, 0.3275911, 1.0))
    sum = g.scale(t, 1.061405429, -1.453152027)
    for factor in (1.421413741, -0.284496736, 0.254829592):
        sum = g.scale(sum * t, 1.0, factor)
    return positive + size * (sum * t) * g.exp(z * z * -1.0) * -0.5


class ViT(MediaEncoder):
    """Square images of one size in patches, learned positions, blocks with LayerNorm, attention in both directions.

    A class defines how images become such squares, and what follows the last block.
    """

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_embd = hparams.positive("embedding_length")
        self.n_head = hparams.positive("attention.head_count")
        self.n_ff = hparams.positive("feed_forward_length")
        self.eps = hparams.number("attention.layer_norm_epsilon")
        self.image_size = hparams.positive("image_size")
        self.patch_size = hparams.positive("patch_size")
        self.mean, self.std = (self._channels(key) for key in ("image_mean", "image_std"))
        self.side = self.image_size // self.patch_size
        if not 0 < self.side <= 256 or self.n_embd % self.n_head:
            raise hparams.wrong("patch_size", f"is {self.patch_size}, which does not fit the image size or heads")
        self.n_rows = self.side**2
        self.n_run = self.n_layer  # blocks that are computed

    def _channels(self, key: str) -> list[float]:
        values = [float(value) for value in self.hparams.per_layer(key, 3)]
        if not all(map(math.isfinite, values)) or (key == "image_std" and 0.0 in values):
            raise self.hparams.wrong(key, f"is {values}, expected three finite numbers")
        return values

    def patch_embeddings(self, g: GraphBuilder) -> Tensor:
        """Return ``[t, n_embd]``: the convolution over patches as a product with each whole patch."""
        n_values = 3 * self.patch_size**2
        kernel = g.weight("v.patch_embd.weight", (self.n_embd, 3, self.patch_size, self.patch_size))
        flat = g.derived("v.patch_embd.flat", (self.n_embd, n_values), lambda w: w.reshape(len(w), -1), kernel)
        return g.linear(g.input("patches", (N_TOKENS, n_values)), flat, g.find_weight("v.patch_embd.bias"))

    def positions(self, g: GraphBuilder) -> Tensor:
        return g.embedding(g.weight("v.position_embd.weight", (self.n_rows, self.n_embd)), g.positions)

    def blocks(self, g: GraphBuilder, x: Tensor) -> Tensor:
        for i in range(self.n_run):
            with g.layer(i):
                blk = f"v.blk.{i}."
                x = x + self._attention(g, blocks.layer_norm(g, x, f"{blk}ln1", self.eps), blk)
                x = x + self._feed_forward(g, blocks.layer_norm(g, x, f"{blk}ln2", self.eps), blk)
        return x

    def _attention(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        head_dim = self.n_embd // self.n_head
        q, k, v = (
            blocks.linear(g, x, blk + name, self.n_embd).reshape(N_TOKENS, self.n_head, head_dim)
            for name in ("attn_q", "attn_k", "attn_v")
        )
        y = g.attention(q, k, v, scale=head_dim**-0.5, causal=False, cache=False)
        return blocks.linear(g, y.reshape(N_TOKENS, self.n_embd), f"{blk}attn_out", self.n_embd)

    def _feed_forward(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        # Older files have the names of both matrices exchanged.
        first = g.weight(f"{blk}ffn_up.weight")
        names = ("ffn_up", "ffn_down") if first.shape[1] == self.n_embd else ("ffn_down", "ffn_up")
        if first.shape[0] == self.n_embd and first.shape[0] == first.shape[1]:
            names = ("ffn_up", "ffn_down")
        up = self.activation(g, blocks.linear(g, x, blk + names[0], self.n_ff))
        return blocks.linear(g, up, blk + names[1], self.n_embd)

    def activation(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return gelu, silu or, by default, the quick form of gelu, ``x * sigmoid(1.702 x)``."""
        kind = self.hparams.get_str("activation")
        if kind == "quick":
            return x * g.sigmoid(x * 1.702)
        return g.gelu(x) if kind == "gelu" else g.silu(x)
