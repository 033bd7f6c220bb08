"""T5 (Raffel et al. 2019, arXiv:1910.10683), Flan-T5, MADLAD-400, umT5: an encoder and a decoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from pumice.plugin import Architecture, GraphBuilder, HParams, Tensor, TensorSource, Weight
from pumice.plugin.nn import blocks, optional
from pumice.plugin.nn.hyper import Heads, read_heads
from pumice.plugin.unstable import ENCODER, MAIN

REACH = 128  # positions; larger distances have the bias of this one
FEWEST_BUCKETS, MOST_BUCKETS = 4, 252  # buckets of distances; their boundaries are undefined outside of this range


class T5(Architecture):
    """Encoder-decoder: each decoder layer caches keys and values of the encoder's output."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.eps = hparams.number("attention.layer_norm_rms_epsilon")
        self.n_encoder = self.n_layer
        self.n_decoder = hparams.get_int("decoder_block_count", 0) or self.n_encoder
        if self.n_decoder < 1:
            raise hparams.wrong("decoder_block_count", f"is {self.n_decoder}, it must be at least 1")
        self.n_layer = max(self.n_encoder, self.n_decoder)
        self.n_buckets = hparams.positive("attention.relative_buckets_count")
        if not FEWEST_BUCKETS <= self.n_buckets <= MOST_BUCKETS:
            problem = f"is {self.n_buckets}, it must be at least {FEWEST_BUCKETS} and at most {MOST_BUCKETS}"
            raise hparams.wrong("attention.relative_buckets_count", problem)
        bos = hparams.metadata.get("tokenizer.ggml.bos_token_id", 0)
        self.decoder_start: int = hparams.get_int("decoder_start_token_id", bos)

    def tensors(self, tensors: Mapping[str, TensorSource]) -> Mapping[str, TensorSource]:
        return optional.applied(tensors, scaled=lambda layer: (), unused=())

    def graphs(self) -> Mapping[str, Callable[[GraphBuilder], Tensor | None]]:
        return {ENCODER: self.encode, MAIN: self.build}

    def encode(self, g: GraphBuilder) -> None:
        x = self.read(g)
        for i in range(self.n_decoder):
            with g.layer(i) as blk:
                heads = self.heads(i)
                k = blocks.linear(g, x, f"dec.{blk}cross_attn_k", heads.n_head_kv * heads.k_dim)
                v = blocks.linear(g, x, f"dec.{blk}cross_attn_v", heads.n_head_kv * heads.v_dim)
                k = k.reshape(x.shape[0], heads.n_head_kv, heads.k_dim)
                g.kv_store(k, v.reshape(x.shape[0], heads.n_head_kv, heads.v_dim), memory_name(i))
        g.output("hidden", g.get_rows(x, g.output_ids))

    def read(self, g: GraphBuilder) -> Tensor:
        """Return the encoder's output for the tokens, ``[t, n_embd]``."""
        x = blocks.embedding(g, self.n_embd)
        for i in range(self.n_encoder):
            with g.layer(i) as blk:
                bias = self.relative_bias(g, "enc", i, both_ways=True)
                x = self.self_attention(g, x, f"enc.{blk}", i, bias=bias, causal=False, cache=False)
                x = g.layer_output(self.feed_forward(g, x, f"enc.{blk}", i))
        return self.norm(g, x, "enc.output_norm")

    def build(self, g: GraphBuilder) -> Tensor | None:
        x = blocks.embedding(g, self.n_embd)
        if not 0 <= self.decoder_start < int(g.weight("token_embd.weight").shape[0]):
            raise self.hparams.wrong("decoder_start_token_id", f"is {self.decoder_start}, no token of the vocabulary")
        for i in range(self.n_decoder):
            with g.layer(i) as blk:
                bias = self.relative_bias(g, "dec", i, both_ways=False)
                x = self.self_attention(g, x, f"dec.{blk}", i, bias=bias)
                x = self.cross_attention(g, x, f"dec.{blk}", i)
                x = g.layer_output(self.feed_forward(g, x, f"dec.{blk}", i))
        return blocks.output_head(g, self.norm(g, g.get_rows(x, g.output_ids), "dec.output_norm"))

    def self_attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        heads = self.heads(i)
        q, k, v = blocks.qkv(g, self.norm(g, x, blk + "attn_norm"), blk, heads)
        return x + self.output(g, g.attention(q, k, v, scale=1.0, **options), f"{blk}attn_o")

    def cross_attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        heads = self.heads(i)
        h = self.norm(g, x, blk + "cross_attn_norm")
        q = blocks.linear(g, h, f"{blk}cross_attn_q", heads.n_head * heads.k_dim)
        q = q.reshape(x.shape[0], heads.n_head, heads.k_dim)
        y = g.attention(q, None, None, scale=1.0, causal=False, cache=g.memory(memory_name(i)))
        return x + self.output(g, y, f"{blk}cross_attn_o")

    def output(self, g: GraphBuilder, y: Tensor, name: str) -> Tensor:
        n_head, v_dim = y.shape[1:]
        return blocks.linear(g, y.reshape(y.shape[0], int(n_head) * int(v_dim)), name, self.n_embd)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        """Apply the feed-forward block, gated with GELU (T5 1.1), or without a gate and with ReLU."""
        h, n_ff = self.norm(g, x, blk + "ffn_norm"), self.hparams.count("feed_forward_length", i)
        if g.find_weight(f"{blk}ffn_gate.weight"):
            return x + blocks.gated_feed_forward(g, h, blk, n_ff, g.gelu)
        return x + blocks.feed_forward(g, h, blk, n_ff, g.relu)

    def relative_bias(self, g: GraphBuilder, stack: str, i: int, both_ways: bool) -> Weight:
        """Return each head's bias by distance ``[n_head, 2 REACH + 1]``; layers without a table use that of layer 0."""
        shape = self.n_buckets, self.heads(i).n_head
        own, first = (f"{stack}.blk.{layer}.attn_rel_b.weight" for layer in (i, 0))
        table = g.find_weight(own, shape) or g.weight(first, shape)
        spread = partial(_by_distance, buckets=_buckets(self.n_buckets, both_ways))
        return g.derived(f"{table.name}, by distance", (shape[1], 2 * REACH + 1), spread, table)

    def heads(self, i: int) -> Heads:
        return read_heads(self.hparams, self.n_embd, i)

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return blocks.rms_norm(g, x, name, self.eps)


class T5Encoder(T5):
    """The encoder alone, for embeddings."""

    def graphs(self) -> Mapping[str, Callable[[GraphBuilder], Tensor | None]]:
        return {MAIN: self.build}

    def build(self, g: GraphBuilder) -> None:
        g.output("hidden", g.get_rows(self.read(g), g.output_ids))


def memory_name(layer: int) -> str:
    return f"memory.{layer}"


def _by_distance(table: Any, buckets: Any) -> Any:
    return table[buckets].T


def _buckets(n_buckets: int, both_ways: bool) -> Any:
    """Return the bucket of each distance from ``-REACH`` to ``REACH``: single for near ones, logarithmic for far ones.

    In an encoder half of the buckets are for later positions.
    """
    distance = np.arange(-REACH, REACH + 1)
    if both_ways:
        n_buckets //= 2
        start, distance = np.where(distance > 0, n_buckets, 0), np.abs(distance)
    else:
        start, distance = np.zeros_like(distance), np.maximum(-distance, 0)
    exact = n_buckets // 2
    logs = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact)).astype(np.float64)
    far = np.floor((exact + logs * (n_buckets - exact) / math.log(REACH / exact)).astype(np.float32)).astype(int)
    return start + np.where(distance < exact, distance, np.minimum(far, n_buckets - 1))
