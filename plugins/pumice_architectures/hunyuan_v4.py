"""Hunyuan 4 (Tencent 2026): latent attention and experts, hyper-connections (Zhu et al. 2024, arXiv:2409.19606)."""

from __future__ import annotations

from functools import reduce
from typing import Any

from pumice.plugin import GraphBuilder, HParams, ModelError, Tensor
from pumice.plugin.nn.blocks import Join, attention_gate, linear, output_head
from pumice.plugin.nn.experts import clamped_swiglu, read_limit
from pumice.plugin.nn.hyper import Heads
from pumice.plugin.nn.latent import latent_attention
from pumice_architectures.deepseek2 import DeepSeek2

MOST_STREAMS = 64


class HunyuanV4(DeepSeek2):
    """Several residual streams, ``[t, n_streams * n_embd]``: a block reads a mixture of them and adds to each."""

    gate = ""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_streams = hparams.positive("hyper_connection.count")
        if self.n_streams > MOST_STREAMS:
            raise hparams.wrong("hyper_connection.count", f"is {self.n_streams}, it must be at most {MOST_STREAMS}")
        self.hyper_eps = hparams.number("hyper_connection.epsilon")
        self.magnitude = hparams.number("hyper_connection.magnitude")
        self.n_positions = hparams.count("attention.indexer.top_k", 0, default=0, low=0)

    def build(self, g: GraphBuilder) -> Tensor | None:
        if 0 < self.n_positions < g.n_ctx:
            raise ModelError(
                f"{self.hparams.architecture} attends to chosen positions beyond a context of {self.n_positions}, "
                f"which is not supported: use n_ctx={self.n_positions} or less"
            )
        return super().build(g)

    def embed(self, g: GraphBuilder) -> Tensor:
        return reduce(g.concat, [super().embed(g)] * self.n_streams)

    def layer(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> Tensor:
        for name, norm, block in (("attn", "attn_norm", self.attention), ("ffn", "ffn_norm", self.feed_forward)):
            n = self.n_streams
            mixes = self.mixes(g, x, f"{blk}hc_{name}", 2 * n)
            h = self.mixture(g, x, mixes[0])
            y = block(g, self.norm(g, h, blk + norm), blk, i)
            back = g.scale(g.sigmoid(mixes[1]), self.magnitude, self.hyper_eps)
            x = x + reduce(g.concat, [y * g.slice(back, j, j + 1) for j in range(n)])
        return x

    def mixes(self, g: GraphBuilder, x: Tensor, name: str, n_out: int) -> list[Tensor]:
        """A number for each stream ``[t, n_streams]``, for as many uses as there are scales."""
        n = self.n_streams
        mixed = g.linear(g.rms_norm(x, None, self.eps), g.weight(f"{name}_fn.weight", (n_out, n * self.n_embd)))
        scales, bases = g.weight(f"{name}_scale.weight", (n_out // n,)), g.weight(f"{name}_base.weight", (n_out,))
        parts = [g.slice(mixed, n * j, n * (j + 1)) for j in range(n_out // n)]
        return [part * scales.rows(j, j + 1) + bases.rows(n * j, n * (j + 1)) for j, part in enumerate(parts)]

    def mixture(self, g: GraphBuilder, x: Tensor, mix: Tensor) -> Tensor:
        weights = g.scale(g.sigmoid(mix), 1.0, self.hyper_eps)
        return g.expert_sum(x.reshape(x.shape[0], self.n_streams, self.n_embd), weights)

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        x = g.get_rows(x, g.output_ids)
        h = self.mixture(g, x, self.mixes(g, x, "output_hc", self.n_streams)[0])
        return output_head(g, self.norm(g, h, "output_norm"))

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        n_head, k_dim, v_dim = self.head_sizes(i)
        q = self.queries(g, x, blk, n_head * k_dim).reshape(x.shape[0], n_head, k_dim)
        sinks = g.weight(f"{blk}attn_sinks.weight", (n_head,))
        rank, rope = self.kv_lora_rank, self.rope(g, i)
        y = latent_attention(g, x, q, blk, rank, v_dim, rope, norm=self.norm, scale=k_dim**-0.5, sinks=sinks)
        gated = attention_gate(g, x, blk, Heads(n_head, 1, k_dim, v_dim), g.sigmoid)
        return linear(g, gated(y.reshape(x.shape[0], n_head * v_dim)), blk + "attn_output", self.n_embd)

    def join(self, g: GraphBuilder, i: int, block: str) -> Join:
        return clamped_swiglu(g, read_limit(self.hparams, "swiglu_clamp_exp", i, 0.0) if block == "exps" else 0.0)
