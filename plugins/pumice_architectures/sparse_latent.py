"""Latent attention with an indexer: DeepSeek V3.2 (DeepSeek-AI 2025, arXiv:2512.02556), GLM 5 (Z.ai 2026), dots3 note.

A token attends to the positions that an indexer ranks highest. If the context has no more positions than are selected,
all are attended to, and the indexer is skipped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import optional
from pumice.plugin.nn.blocks import attention_gate, layer_norm, linear
from pumice.plugin.nn.hyper import Heads
from pumice.plugin.nn.latent import latent_attention
from pumice.plugin.nn.rope import Rope, frequency_base
from pumice_architectures.deepseek2 import DeepSeek2

INDEXER_EPS = 1e-6  # epsilon of the norm of the indexer's keys


class SparseLatent(DeepSeek2):
    gate = ""
    mscale_is_for_all = False
    #: Whether RoPE rotates the pairs ``(i, i + n_rot/2)`` of the indexer's heads, or ``(2i, 2i + 1)``.
    indexer_neox: ClassVar[bool] = True

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        if not self.is_absorbed:
            raise hparams.wrong("attention.key_length_mla", "is missing or 0, but the model uses latent attention")
        self.n_chosen, self.n_index_head, self.index_dim = self.indexer_sizes(hparams)
        self.index_eps = INDEXER_EPS
        self.mask: Tensor | None = None  # mask of the last layer with an indexer

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        n_head, k_dim, v_dim = self.head_sizes(i)
        rope, rank_of_q = self.rope(g, i), self.hparams.positive("attention.q_lora_rank")
        compressed = linear(g, x, blk + "attn_q_a", rank_of_q)
        normed = self.norm(g, compressed, blk + "attn_q_a_norm")
        wide = self.query_input(g, compressed, normed)
        q = linear(g, wide, blk + "attn_q_b", n_head * k_dim).reshape(x.shape[0], n_head, k_dim)
        options = self.latent_options(g, blk, i) | self.seen(g, x, normed, blk, i)
        scale, rank = self.attention_scale(rope, k_dim), self.rank(i)
        y = latent_attention(g, x, q, blk, rank, v_dim, rope, norm=self.norm, scale=scale, **options)
        y = y.reshape(x.shape[0], n_head * v_dim)
        if self.attention_gate:
            y = attention_gate(g, self.gate_input(x, wide), blk, Heads(n_head, 1, k_dim, v_dim), g.sigmoid)(y)
        return linear(g, y, blk + "attn_output", self.n_embd)

    def query_input(self, g: GraphBuilder, compressed: Tensor, normed: Tensor) -> Tensor:
        """Return the input of ``attn_q_b``, from the results of ``attn_q_a`` before and after their norm."""
        return normed

    def gate_input(self, x: Tensor, wide: Tensor) -> Tensor:
        """Return the input of the gate in ``finish``: that of the layer, or of ``attn_q_b``."""
        return x

    def seen(self, g: GraphBuilder, x: Tensor, compressed: Tensor, blk: str, i: int) -> dict[str, Any]:
        """Return the mask of selected positions, if needed; a layer without an indexer reuses the previous mask."""
        if not 0 < self.n_chosen < g.n_ctx or i >= self.n_layer:
            return {}
        if self.has_indexer(i):
            self.mask = self.indexer(g, x, compressed, blk, self.rope(g, i))
        if self.mask is None:
            raise self.hparams.wrong("attention.indexer.types", "lacks an indexer in the first layer")
        return {"mask": self.mask}

    def indexer(self, g: GraphBuilder, x: Tensor, compressed: Tensor, blk: str, rope: Rope) -> Tensor:
        n_head, dim = self.n_index_head, self.index_dim
        if rope.n_rot > dim:
            raise self.hparams.wrong(
                "attention.indexer.key_length", f"is {dim}, less than the {rope.n_rot} values that RoPE rotates"
            )
        q = linear(g, compressed, blk + "indexer.attn_q_b", n_head * dim).reshape(x.shape[0], n_head, dim)
        k = layer_norm(g, linear(g, x, blk + "indexer.attn_k", dim), blk + "indexer.k_norm", self.index_eps)
        q, k = (self.turned(g, heads, rope) for heads in (q, k.reshape(x.shape[0], 1, dim)))
        weights = linear(g, x, blk + "indexer.proj", n_head)
        return g.choose_positions(q, k, weights, n_chosen=self.n_chosen, n_ctx=g.n_ctx)

    def indexer_sizes(self, hparams: HParams) -> tuple[int, int, int]:
        """Return the number of selected positions (0: all), of heads, and the width of a head."""
        top_k, n_head, dim = (
            hparams.positive(f"attention.indexer.{key}") for key in ("top_k", "head_count", "key_length")
        )
        return top_k, n_head, dim

    def turned(self, g: GraphBuilder, x: Tensor, rope: Rope) -> Tensor:
        """Rotate the indexer's heads by their positions."""
        return replace(rope, neox=self.indexer_neox)(g, x)

    def has_indexer(self, i: int) -> bool:
        return True

    def rank(self, i: int) -> int:
        """Return the width of a latent."""
        return self.kv_lora_rank

    def latent_options(self, g: GraphBuilder, blk: str, i: int) -> dict[str, Any]:
        return {}


class DeepSeek32(SparseLatent):
    scaled = SparseLatent.scaled | optional.FEED_FORWARD | optional.EXPERTS | optional.SHARED


class GLMDSA(DeepSeek32):
    """DeepSeek V3.2's layers; from GLM 5.2 on some layers have no indexer."""

    gate = "sigmoid"
    indexer_neox = False
    n_ctx_52 = 2**20  # context of GLM 5.2, whose layers share indexers

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.mscale_all_dim = 0.0

    def has_indexer(self, i: int) -> bool:
        shared = self.n_ctx_train >= self.n_ctx_52 and i > 2 and i % 4 != 2
        return bool(self.hparams.per_layer("attention.indexer.types", i + 1, default=int(not shared))[i])


class Dots3Note(SparseLatent):
    """Sliding layers have latents of another size; the shared key is normalized, and each head has a gate."""

    drafts = ""
    scaled = DeepSeek32.scaled
    sliding_layers = "listed"
    attention_gate = "sigmoid"

    def seen(self, g: GraphBuilder, x: Tensor, compressed: Tensor, blk: str, i: int) -> dict[str, Any]:
        return {} if self.window(i) else super().seen(g, x, compressed, blk, i)

    def latent_options(self, g: GraphBuilder, blk: str, i: int) -> dict[str, Any]:
        window = self.window(i)
        return {"norm_of_key": "attn_k_norm"} | ({"window": window} if window else {})

    def attention_scale(self, rope: Rope, k_dim: int) -> float:
        return float(k_dim**-0.5)

    def rank(self, i: int) -> int:
        return self.hparams.positive(f"attention.kv_lora_rank{self.kind(i)}")

    def kind(self, i: int) -> str:
        """Return the suffix of hyperparameters for layer ``i``."""
        return "_swa" if self.window(i) else ""

    def head_sizes(self, i: int) -> tuple[int, int, int]:
        kind = self.kind(i)
        k_dim, v_dim = (self.hparams.positive(f"attention.{name}_length_mla{kind}") for name in ("key", "value"))
        return self.hparams.count("attention.head_count", i), k_dim, v_dim

    def rope(self, g: GraphBuilder, i: int) -> Rope:
        rope = super().rope(g, i)
        if not self.kind(i):
            return rope
        key = "rope.freq_base_swa"
        return replace(rope, freq_base=frequency_base(self.hparams, key, self.hparams.number(key)))
