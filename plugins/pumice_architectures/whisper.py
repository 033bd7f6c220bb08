"""Whisper (Radford et al. 2022, arXiv:2212.04356): a decoder of text that attends to an encoded sound.

The encoder is that of ``hearing.whisper``, in the same file; its rows are what the encoder's graph here reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_OUTPUTS, N_TOKENS, Architecture, GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.nn.hyper import Heads, read_heads
from pumice.plugin.unstable import ALIGN, ENCODER, MAIN, MEDIA_ROWS, SOUND_WINDOW, StepRows
from pumice_architectures.t5 import memory_name


class Whisper(Architecture):
    """The decoder. Each layer caches keys and values of the encoded sound."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.eps = hparams.number("attention.layer_norm_epsilon")
        self.n_positions = self.n_ctx_train
        self.n_ctx_train += hparams.positive(SOUND_WINDOW)  # a prompt is a sound and the decoder's tokens
        self.decoder_start: int = hparams.get_int("decoder_start_token_id")

    @cached_property
    def following(self) -> Mapping[int, Sequence[int]]:
        """Return the heads whose attention follows the speech, by layer: without a key, those of the last layer."""
        n_head, numbers = self.heads(0).n_head, self.hparams.integers("alignment_heads", ())
        if not numbers:
            return {self.n_layer - 1: range(n_head)}
        pairs = list(zip(numbers[::2], numbers[1::2], strict=False))
        if len(numbers) % 2 or not all(0 <= i < self.n_layer and 0 <= head < n_head for i, head in pairs):
            raise self.hparams.wrong("alignment_heads", f"is {numbers}, no pairs of a layer and a head")
        return {layer: sorted({head for i, head in pairs if i == layer}) for layer, _ in sorted(pairs)}

    def graphs(self) -> Mapping[str, Callable[[GraphBuilder], Tensor | None]]:
        return {ENCODER: self.remember, MAIN: self.build, ALIGN: self.align}

    def remember(self, g: GraphBuilder) -> None:
        """Store the keys and values of a sound's rows for each layer."""
        x, following = g.input(MEDIA_ROWS, (N_TOKENS, self.n_embd)), []
        for i in range(self.n_layer):
            with g.layer(i) as blk:
                heads = self.heads(i)
                k = blocks.linear(g, x, f"dec.{blk}cross_attn_k", heads.n_head * heads.k_dim)
                v = blocks.linear(g, x, f"dec.{blk}cross_attn_v", heads.n_head * heads.v_dim)
                following += self._following(g, k, i)
                k = k.reshape(N_TOKENS, heads.n_head, heads.k_dim)
                g.kv_store(k, v.reshape(N_TOKENS, heads.n_head, heads.v_dim), memory_name(i))
        g.output("keys", self._joined(g, following))

    def build(self, g: GraphBuilder) -> Tensor:
        x = self._decoded(g, self.n_layer, [])
        return blocks.output_head(g, self.norm(g, g.get_rows(x, g.output_ids), "dec.output_norm"))

    def align(self, g: GraphBuilder) -> None:
        """Compute the queries of the heads that follow the speech."""
        queries: list[Tensor] = []
        self._decoded(g, max(self.following) + 1, queries)
        g.output("queries", self._joined(g, queries))

    def _following(self, g: GraphBuilder, x: Tensor, i: int) -> list[Tensor]:
        """Return the rows of outputs for each head of layer ``i`` that follows the speech."""
        d = self.heads(i).k_dim
        rows = g.get_rows(x, g.output_ids) if i in self.following else x
        return [g.slice(rows, head * d, (head + 1) * d) for head in self.following.get(i, ())]

    def _joined(self, g: GraphBuilder, heads: Sequence[Tensor]) -> Tensor:
        return reduce(g.concat, heads).reshape(N_OUTPUTS, len(heads), int(heads[0].shape[1]))

    def _decoded(self, g: GraphBuilder, n_layer: int, queries: list[Tensor]) -> Tensor:
        """Return the tokens' rows after the first layers; add the queries of heads that follow the speech."""
        x = blocks.embedding(g, self.n_embd)
        if not 0 <= self.decoder_start < int(g.weight("token_embd.weight").shape[0]):
            raise self.hparams.wrong("decoder_start_token_id", f"is {self.decoder_start}, no token of the vocabulary")
        positions = g.input("text_positions", (N_TOKENS,), "i32", fill=self._positions)
        x = x + g.embedding(g.weight("position_embd.weight", (self.n_positions, self.n_embd)), positions)
        for i in range(n_layer):
            with g.layer(i) as blk:
                x = self.self_attention(g, x, f"dec.{blk}", i)
                x = self.cross_attention(g, x, f"dec.{blk}", i, queries)
                h = self.norm(g, x, f"dec.{blk}ffn_norm")
                n_ff = self.hparams.count("feed_forward_length", i)
                x = g.layer_output(x + blocks.feed_forward(g, h, f"dec.{blk}", n_ff, g.gelu_erf))
        return x

    def self_attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        heads = self.heads(i)
        q, k, v = blocks.qkv(g, self.norm(g, x, f"{blk}attn_norm"), blk, heads)
        return x + self._output(g, g.attention(q, k, v, scale=heads.k_dim**-0.5), f"{blk}attn_o")

    def cross_attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, queries: list[Tensor]) -> Tensor:
        heads = self.heads(i)
        q = blocks.linear(g, self.norm(g, x, f"{blk}cross_attn_norm"), f"{blk}cross_attn_q", heads.n_head * heads.k_dim)
        queries += self._following(g, q, i)
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
