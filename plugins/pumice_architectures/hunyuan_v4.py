"""Hunyuan 4 (Tencent 2026): latent attention and experts, hyper-connections (Zhu et al. 2024, arXiv:2409.19606)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, HParams, ModelError, Tensor
from pumice.plugin.nn.blocks import Join, attention_gate, linear
from pumice.plugin.nn.experts import clamped_swiglu, read_limit
from pumice.plugin.nn.hyper import Heads
from pumice.plugin.nn.latent import latent_attention
from pumice.plugin.nn.streams import StreamDecoder, read_streams
from pumice_architectures.deepseek2 import DeepSeek2


class HunyuanV4(StreamDecoder, DeepSeek2):
    """Several residual streams, ``[t, n_streams * n_embd]``: a block reads a mixture of them and adds to each."""

    gate = ""
    drafts = ""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.streams = read_streams(hparams, self.n_embd, self.eps)
        self.least_written = self.streams.least
        self.magnitude = hparams.number("hyper_connection.magnitude")
        self.n_positions = hparams.count("attention.indexer.top_k", 0, default=0, low=0)

    def build(self, g: GraphBuilder) -> Tensor | None:
        if 0 < self.n_positions < g.n_ctx:
            raise ModelError(
                f"{self.hparams.architecture} attends to chosen positions beyond a context of {self.n_positions}, "
                f"which is not supported: use n_ctx={self.n_positions} or less"
            )
        return super().build(g)

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
