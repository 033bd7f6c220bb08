"""Hunyuan 4 (Tencent 2026): latent attention and experts, hyper-connections (Zhu et al. 2024, arXiv:2409.19606)."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import Join, attention_sinks
from pumice.plugin.nn.experts import clamped_swiglu, read_limit
from pumice.plugin.nn.rope import Rope
from pumice.plugin.nn.streams import StreamDecoder, read_streams
from pumice_architectures.sparse_latent import SparseLatent


class HunyuanV4(StreamDecoder, SparseLatent):
    """Residual streams ``[t, n_streams * n_embd]``: a block reads a mixture of them and adds to each."""

    gate = ""
    drafts = ""
    scaled = frozenset()
    attention_gate = "sigmoid"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.streams = read_streams(hparams, self.n_embd, self.eps)
        self.least_written = self.streams.least
        self.magnitude = hparams.number("hyper_connection.magnitude")
        self.index_eps = self.eps

    def indexer_sizes(self, hparams: HParams) -> tuple[int, int, int]:
        """Return the indexer's sizes; 0 for models whose layers all attend globally."""
        return super().indexer_sizes(hparams) if hparams.get_int("attention.indexer.top_k", 0) else (0, 0, 0)

    def has_indexer(self, i: int) -> bool:
        return bool(self.hparams.per_layer("attention.indexer.types", i + 1, default=1)[i])

    def turned(self, g: GraphBuilder, x: Tensor, rope: Rope) -> Tensor:
        """Rotate the last values of a head."""
        first = self.index_dim - rope.n_rot
        return g.concat(g.slice(x, 0, first), rope(g, g.slice(x, first, self.index_dim)))

    def latent_options(self, g: GraphBuilder, blk: str, i: int) -> dict[str, Any]:
        return {"sinks": attention_sinks(g, blk, self.head_sizes(i)[0])}

    def attention_scale(self, rope: Rope, k_dim: int) -> float:
        return float(k_dim**-0.5)

    def join(self, g: GraphBuilder, i: int, block: str) -> Join:
        return clamped_swiglu(g, read_limit(self.hparams, "swiglu_clamp_exp", i, 0.0) if block == "exps" else 0.0)
