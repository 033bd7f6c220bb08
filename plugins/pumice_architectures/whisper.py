"""Whisper (Radford et al. 2022, arXiv:2212.04356): a decoder of text that attends to an encoded sound.

The encoder is that of ``hearing.whisper``, in the same file; its rows are what the encoder's graph here reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, Architecture, GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.nn.hyper import Heads, read_heads
from pumice.plugin.unstable import ENCODER, MAIN, MEDIA_ROWS, StepRows
from pumice_architectures.t5 import memory_name
from pumice_architectures.vision.vit import gelu_erf


class Whisper(Architecture):
    """The decoder. Each layer caches keys and values of the encoded sound."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.eps = hparams.number("attention.layer_norm_epsilon")
        self.n_positions = self.n_ctx_train
        self.n_ctx_train += hparams.positive("encoder.context_length")  # a prompt is a sound and the decoder's tokens
        self.decoder_start: int = hparams.get_int("decoder_start_token_id")

    def graphs(self) -> Mapping[str, Callable[[GraphBuilder], Tensor | None]]:
        return {ENCODER: self.remember, MAIN: self.build}

    def remember(self, g: GraphBuilder) -> None:
        """Store the keys and values of a sound's rows for each layer."""
        x = g.input(MEDIA_ROWS, (N_TOKENS, self.n_embd))
        for i in range(self.n_layer):
            with g.layer(i) as blk:
                heads = self.heads(i)
                k = blocks.linear(g, x, f"dec.{blk}cross_attn_k", heads.n_head * heads.k_dim)
                v = blocks.linear(g, x, f"dec.{blk}cross_attn_v", heads.n_head * heads.v_dim)
                k = k.reshape(N_TOKENS, heads.n_head, heads.k_dim)
                g.kv_store(k, v.reshape(N_TOKENS, heads.n_head, heads.v_dim), memory_name(i))
        g.output("remembered", g.get_rows(x, g.output_ids))

    def build(self, g: GraphBuilder) -> Tensor:
        x = blocks.embedding(g, self.n_embd)
        if not 0 <= self.decoder_start < int(g.weight("token_embd.weight").shape[0]):
            raise self.hparams.wrong("decoder_start_token_id", f"is {self.decoder_start}, no token of the vocabulary")
        positions = g.input("text_positions", (N_TOKENS,), "i32", fill=self._positions)
        x = x + g.embedding(g.weight("position_embd.weight", (self.n_positions, self.n_embd)), positions)
        for i in range(self.n_layer):
            with g.layer(i) as blk:
                x = self.self_attention(g, x, f"dec.{blk}", i)
                x = self.cross_attention(g, x, f"dec.{blk}", i)
                h = self.norm(g, x, f"dec.{blk}ffn_norm")
                n_ff = self.hparams.count("feed_forward_length", i)
                x = g.layer_output(x + blocks.feed_forward(g, h, f"dec.{blk}", n_ff, lambda y: gelu_erf(g, y)))
        return blocks.output_head(g, self.norm(g, g.get_rows(x, g.output_ids), "dec.output_norm"))

    def self_attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        heads = self.heads(i)
        q, k, v = blocks.qkv(g, self.norm(g, x, f"{blk}attn_norm"), blk, heads)
        return x + self._output(g, g.attention(q, k, v, scale=heads.k_dim**-0.5), f"{blk}attn_o")

    def cross_attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        heads = self.heads(i)
        q = blocks.linear(g, self.norm(g, x, f"{blk}cross_attn_norm"), f"{blk}cross_attn_q", heads.n_head * heads.k_dim)
        q = q.reshape(N_TOKENS, heads.n_head, heads.k_dim)
        options: dict[str, Any] = {"causal": False, "cache": g.memory(memory_name(i))}
        return x + self._output(g, g.attention(q, None, None, scale=heads.k_dim**-0.5, **options), f"{blk}cross_attn_o")

    def heads(self, i: int) -> Heads:
        return read_heads(self.hparams, self.n_embd, i)

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return blocks.layer_norm(g, x, name, self.eps)

    def _output(self, g: GraphBuilder, y: Tensor, name: str) -> Tensor:
        n_head, v_dim = y.shape[1:]
        return blocks.linear(g, y.reshape(N_TOKENS, int(n_head) * int(v_dim)), name, self.n_embd)

    def _positions(self, batch: StepRows) -> NDArray[np.int32]:
        """Return each token's place in the table; the context is longer than the table, whose last row then serves."""
        return np.minimum(batch.positions, self.n_positions - 1).astype(np.int32)
