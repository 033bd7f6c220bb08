"""Latent attention with an indexer: DeepSeek V3.2 (DeepSeek-AI 2025, arXiv:2512.02556), GLM 5 (Z.ai 2026), dots3 note.

A token attends to the positions that an indexer ranks highest. Where the context has no more than these, that is all
of them, and the indexer is not asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pumice.plugin import GraphBuilder, HParams, ModelError, Tensor
from pumice.plugin.nn.blocks import attention_gate, linear
from pumice.plugin.nn.hyper import Heads, sliding_pattern, sliding_window
from pumice.plugin.nn.latent import latent_attention
from pumice.plugin.nn.rope import Rope, frequency_base
from pumice_architectures.deepseek2 import DeepSeek2


class SparseLatent(DeepSeek2):
    gate = ""
    mscale_is_for_all = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        if not self.is_absorbed:
            raise hparams.wrong("attention.key_length_mla", "is missing or 0: the model attends to latents")
        self.n_positions = hparams.positive("attention.indexer.top_k")

    def build(self, g: GraphBuilder) -> Tensor | None:
        if g.n_ctx > self.n_positions:
            raise ModelError(
                f"{self.hparams.architecture} attends to chosen positions beyond a context of {self.n_positions}, "
                f"which is not supported: use n_ctx={self.n_positions} or less"
            )
        return super().build(g)


class DeepSeek32(SparseLatent):
    ffn_scales = True


class GLMDSA(DeepSeek32):
    gate = "sigmoid"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.mscale_all_dim = 0.0

    def sharpen(self, g: GraphBuilder, q: Tensor) -> Tensor:
        return q


class Dots3Note(SparseLatent):
    """Sliding layers have latents of another size; the shared key is normalized, and each head has a gate."""

    def attention(self, g: GraphBuilder, x: Tensor, blk: str, i: int, **options: Any) -> Tensor:
        window, kind = self.window(i), self.kind(i)
        n_head, k_dim, v_dim = self.head_sizes(i)
        rank = self.hparams.positive(f"attention.kv_lora_rank{kind}")
        q = self.queries(g, x, blk, n_head * k_dim).reshape(x.shape[0], n_head, k_dim)
        how = {"norm": self.norm, "scale": k_dim**-0.5, "norm_of_key": "attn_k_norm"}
        options = {"window": window} if window else {}
        y = latent_attention(g, x, q, blk, rank, v_dim, self.rope(g, i), **how, **options)
        gated = attention_gate(g, x, blk, Heads(n_head, 1, k_dim, v_dim), g.sigmoid)
        return linear(g, gated(y.reshape(x.shape[0], n_head * v_dim)), blk + "attn_output", self.n_embd)

    def kind(self, i: int) -> str:
        """What the keys of layer ``i`` end with."""
        return "_swa" if self.window(i) else ""

    def window(self, i: int) -> int:
        return sliding_window(self.hparams, None) if sliding_pattern(self.hparams, self.n_layer)[i] else 0

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
