"""Qwen4-Exp (Alibaba 2026): Qwen 3.5's delta nets, attention and experts; residual streams, n-gram embeddings."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import optional
from pumice.plugin.nn.blocks import linear
from pumice.plugin.nn.ngrams import NGrams, read_ngrams
from pumice.plugin.nn.pools import averaged
from pumice.plugin.nn.recurrent import causal_conv
from pumice.plugin.nn.rope import Rope
from pumice.plugin.nn.streams import GatedStreams, StreamDecoder, read_gated_streams
from pumice_architectures.qwen_next import Qwen35MoE

LEAST_FOURTH = 1e-12  # lower bound of the fourth power of a gate's logit
HUGE = 1e30  # factor that saturates a clamp to [-1, 1], for the sign


class Qwen4Exp(StreamDecoder, Qwen35MoE):
    drafts = ""
    unused = optional.QKV_BIASES
    streams: GatedStreams

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.streams = read_gated_streams(hparams, self.n_embd, self.eps)
        self.n_index_head, self.index_dim, self.n_chosen = (
            hparams.positive(f"attention.indexer.{key}") for key in ("head_count", "key_length", "top_k")
        )
        layers = hparams.integers("ple.layers", ())
        if len(layers) > 1:
            raise hparams.wrong("ple.layers", f"is {layers}, expected one layer")
        if any(not 0 <= layer < self.n_layer for layer in layers):
            raise hparams.wrong("ple.layers", f"is {layers[0]}, expected a layer below {self.n_layer}")
        self.ngrams = {layer: read_ngrams(hparams) for layer in layers}

    def normed(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return x  # already a mixture of normalized streams

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        return super().layer(g, self.with_ngrams(g, x, blk, self.ngrams[i]) if i in self.ngrams else x, blk, i)

    def with_ngrams(self, g: GraphBuilder, x: Tensor, blk: str, ngrams: NGrams) -> Tensor:
        """Add the gated n-gram value and its convolution to each stream."""
        streams, name = self.streams, f"{blk}ple_"
        rows, shape = ngrams.embedding(g), (x.shape[0], streams.n, self.n_embd)
        keys = streams.norm(g, linear(g, rows, f"{name}key", streams.n * self.n_embd), f"{name}norm_key")
        products = keys * streams.norm(g, x, f"{name}norm_query")
        match = g.sum(products.reshape(*shape), axis=-1, keepdims=True) * self.n_embd**-0.5
        root = g.sqrt(g.sqrt(g.clamp(match * match, LEAST_FOURTH, float("inf"))))
        gates = g.sigmoid(root * g.clamp(match * HUGE, -1.0, 1.0))
        values = streams.start(g, linear(g, rows, f"{name}value", self.n_embd)).reshape(*shape)
        values = (values * gates).reshape(*x.shape)
        normed = streams.norm(g, values, f"{name}norm_conv")
        n_taps = self.hparams.positive("ple.conv_kernel")
        return x + values + causal_conv(g, normed, f"{name}conv1d", n_taps, dilation=ngrams.n)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        mask = None if self.recurrent(i) else self.chosen(g, x, blk, i)
        return super().attention(g, x, blk, i, **options, **({} if mask is None else {"mask": mask}))

    def chosen(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor | None:
        """Return the mask of selected blocks by the mean of their keys, or None if all blocks are attended to."""
        size = self.hparams.count("attention.compress_ratios", i, default=0, low=0)
        if size and self.n_chosen % size:
            raise self.hparams.wrong(
                "attention.indexer.top_k", f"is {self.n_chosen}, expected a multiple of the block size {size}"
            )
        if not size or g.n_ctx // size <= self.n_chosen // size:
            return None
        n_head, dim, rope = self.n_index_head, self.index_dim, self.rope(g, i)
        assert rope is not None
        if rope.n_rot > dim:
            raise self.hparams.wrong(
                "attention.indexer.key_length", f"is {dim}, less than the {rope.n_rot} values that RoPE rotates"
            )
        q = linear(g, x, blk + "indexer.q_proj", n_head * dim).reshape(x.shape[0], n_head, dim)
        k = averaged(g, linear(g, x, blk + "indexer.k_proj", dim), size, f"{blk}indexer block")
        k = self.norm(g, k, blk + "indexer.k_norm").reshape(x.shape[0], 1, dim)
        q, k = rope(g, self.norm(g, q, blk + "indexer.q_norm")), at_first_token(g, k, rope, size)
        ones = g.scale(g.slice(q.reshape(x.shape[0], n_head * dim), 0, n_head), 0.0, 1.0)
        return g.choose_positions(q, k, ones, n_chosen=self.n_chosen // size, n_ctx=g.n_ctx, pool=size)

    def gate_of_net(self, g: GraphBuilder, z: Tensor) -> Tensor:
        return g.sigmoid(z)


def at_first_token(g: GraphBuilder, k: Tensor, rope: Rope, size: int) -> Tensor:
    """Rotate keys by the position of their block's first token: ``size`` times the block's number."""
    freqs = tuple(size * freq for freq in rope.freqs)
    blocks = g.quotient(g.positions, size)
    return g.rope(k, blocks, freqs=freqs, neox=rope.neox, magnitude=rope.magnitude)
