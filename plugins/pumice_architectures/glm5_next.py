"""GLM 5.3 Flash (Z.ai 2026): Kimi's delta attention, latent attention to selected pools, residual streams."""

from __future__ import annotations

from typing import Any

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import Join, layer_norm, linear
from pumice.plugin.nn.experts import clamped_swiglu, read_limit
from pumice.plugin.nn.latent import latent_weights
from pumice.plugin.nn.pools import pooled
from pumice.plugin.nn.streams import StreamDecoder, read_streams
from pumice_architectures.kimi_linear import KimiLinear

INDEXER_EPS = 0.0  # default epsilon of the norm of the indexer's keys


class GLM5Next(StreamDecoder, KimiLinear):
    gate = "sigmoid"
    normalize = None
    compressed = True
    scaled = frozenset()
    l2_eps = 1e-6

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.streams = read_streams(hparams, self.n_embd, self.eps, iterated=True)
        self.bound = hparams.get_float("kda.gate_lower_bound", 0.0)
        self.n_index_head, self.index_dim, self.n_chosen, self.pool = (
            hparams.positive(f"attention.indexer.{key}") for key in ("head_count", "key_length", "top_k", "kpool")
        )
        if self.pool < 2 or self.n_chosen % self.pool:
            raise hparams.wrong(
                "attention.indexer.kpool", f"is {self.pool}, expected a divisor, above 1, of {self.n_chosen}"
            )
        if not hparams.get_bool("attention.indexer.kpool_select_tail", True):
            raise hparams.wrong(
                "attention.indexer.kpool_select_tail", "is false, but the first tokens of a text require it"
            )
        if hparams.get_int("rope.dimension_count"):
            raise hparams.wrong("rope.dimension_count", "is not 0, but the model has no positions")
        self.index_eps = hparams.number("attention.layer_norm_epsilon", INDEXER_EPS)
        self.mask: Tensor | None = None  # mask of the last layer with an indexer

    def last_stream(self, g: GraphBuilder, x: Tensor) -> Tensor:
        return self.streams.mean(g, x)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        if self.recurrent(i):
            return self.mixer(g, x, blk, i)
        hparams, n_head = self.hparams, self.hparams.count("attention.head_count", i)
        k_dim, v_dim = (hparams.positive(f"attention.{kind}_length_mla") for kind in ("key", "value"))
        rank = hparams.positive("attention.kv_lora_rank")
        q_rank = hparams.positive("attention.q_lora_rank")
        compressed = self.norm(g, linear(g, x, blk + "attn_q_a", q_rank), blk + "attn_q_a_norm")
        q = linear(g, compressed, blk + "attn_q_b", n_head * k_dim).reshape(x.shape[0], n_head, k_dim)
        latent = self.norm(g, linear(g, x, blk + "attn_kv_a_mqa", rank), blk + "attn_kv_a_norm")
        k_b, v_b, _ = latent_weights(g, blk, n_head, rank, k_dim, v_dim)
        mask = self.chosen(g, x, compressed, blk, i)
        q, k = g.batched_linear(q, k_b), latent.reshape(x.shape[0], 1, rank)
        y = g.batched_linear(g.attention(q, k, None, scale=k_dim**-0.5, v_dim=rank, mask=mask), v_b)
        return linear(g, y.reshape(x.shape[0], n_head * v_dim), blk + "attn_output", self.n_embd)

    def chosen(self, g: GraphBuilder, x: Tensor, compressed: Tensor, blk: str, i: int) -> Tensor | None:
        """Return the mask of selected pools, or None; a layer without an indexer reuses the previous mask."""
        if g.n_ctx <= self.n_chosen:
            return None
        if self.hparams.count("attention.indexer.types", i, default=1, low=0):
            self.mask = self.indexer(g, x, compressed, blk)
        if self.mask is None:
            raise self.hparams.wrong("attention.indexer.types", "lacks an indexer in the first layer")
        return self.mask

    def indexer(self, g: GraphBuilder, x: Tensor, compressed: Tensor, blk: str) -> Tensor:
        n_head, dim = self.n_index_head, self.index_dim
        q = linear(g, compressed, blk + "indexer.attn_q_b", n_head * dim).reshape(x.shape[0], n_head, dim)
        k = layer_norm(g, linear(g, x, blk + "indexer.attn_k", dim), blk + "indexer.k_norm", self.index_eps)
        scores, places = (blk + f"indexer_compressor_{name}" for name in ("gate", "ape"))
        places_in_pool = g.weight(f"{places}.weight", (self.pool, dim))
        k = pooled(g, k, linear(g, x, scores, dim), places_in_pool, f"{blk}indexer pools")
        weights = linear(g, x, blk + "indexer.proj", n_head)
        n_pools = self.n_chosen // self.pool
        k = k.reshape(x.shape[0], 1, dim)
        return g.choose_positions(q, k, weights, n_chosen=n_pools, n_ctx=g.n_ctx, pool=self.pool)

    def join(self, g: GraphBuilder, i: int, block: str) -> Join:
        limit = read_limit(self.hparams, "swiglu_clamp_exp", i, 0.0)
        if block != "exps":
            limit = read_limit(self.hparams, "swiglu_clamp_shexp", i, limit)
        return clamped_swiglu(g, limit)
