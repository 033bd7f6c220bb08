"""Llama, and families whose queries and keys are stored as Llama's: halves that GGUF has as pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from pumice.plugin.convert import Conversion, LazyTensor

QUERIES = ("q_proj.weight", "q_proj.bias")
KEYS = ("k_proj.weight", "k_proj.bias")


class Llama(Conversion):
    """Llama 1 to 3, Mistral, Mixtral."""

    architecture = "llama"
    vocabularies = ("sentencepiece", "fast_sentencepiece", "bpe")
    pre_tokenizers = ("llama-bpe",)
    default_factor = 8.0  # of llama3's rotary scaling

    @property
    def head_dim(self) -> int:
        return self.config.first("head_dim") or self.config.need("hidden_size") // self.config.need(
            "num_attention_heads"
        )

    def metadata(self) -> dict[str, Any]:
        more = {"vocab_size": self.config.need("vocab_size"), "rope.dimension_count": self.head_dim}
        return super().metadata() | more

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        rope = self.config.rope
        yield from llama3_factors(rope.get("full_attention", rope), self.head_dim, self.default_factor)

    def rename(self, name: str) -> str | None:
        found = super().rename(name)
        if found and "block_sparse_moe.experts." in found:  # as Mixtral's first files have it
            return found.removeprefix("model.").replace("block_sparse_moe", "feed_forward")
        return found

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from super().convert(name, interleaved(self, name, tensor))


def interleaved(conversion: Conversion, name: str, tensor: LazyTensor) -> LazyTensor:
    """Rows of queries and keys in pairs; other tensors as they are."""
    n_head = conversion.config.need("num_attention_heads", "n_heads")
    if name.endswith(QUERIES):
        return tensor.interleave_rope(n_head)
    if name.endswith(KEYS):
        return tensor.interleave_rope(conversion.config.first("num_key_value_heads", "n_kv_heads") or n_head)
    return tensor


def llama3_factors(rope: dict[str, Any], dim: int, default_factor: float) -> Iterator[tuple[str, LazyTensor]]:
    """``rope_freqs.weight``, by which frequencies are divided: 1 for short waves, ``factor`` for long ones.

    Between the two the inverse goes over evenly (Llama 3.1's reference code, ``apply_scaling``).
    """
    if str(rope.get("rope_type", "")).lower() != "llama3":
        return
    factor, low, high = (
        rope.get("factor", default_factor),
        rope.get("low_freq_factor", 1.0),
        rope.get("high_freq_factor", 4.0),
    )
    trained = rope.get("original_max_position_embeddings", 8192)
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    waves = 2 * math.pi * np.float32(rope.get("rope_theta", 10000.0)) ** exponents
    smooth = (trained / waves - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    factors = np.where(waves < trained / high, 1.0, np.where(waves > trained / low, factor, between))
    yield "rope_freqs.weight", LazyTensor.of(factors)


class SmolLM3(Llama):
    """SmolLM3."""

    architecture = "smollm3"


class Granite(Llama):
    """Granite 3: Llama with multipliers."""

    architecture = "granite"
    MULTIPLIERS = {
        "attention.scale": "attention_multiplier",
        "embedding_scale": "embedding_multiplier",
        "residual_scale": "residual_multiplier",
        "logit_scale": "logits_scaling",
    }

    @property
    def head_dim(self) -> int:
        return self.config.need("hidden_size") // self.config.need("num_attention_heads")

    def metadata(self) -> dict[str, Any]:
        found = super().metadata()
        for key in ("attention.key_length", "attention.value_length"):
            found.pop(key, None)
        return found | {
            key: float(self.config[name]) for key, name in self.MULTIPLIERS.items() if self.config.get(name)
        }

    def tokenizer(self) -> dict[str, Any]:
        return {"tokenizer.ggml.add_bos_token": False} if self.config.get("vocab_size") == 49152 else {}


class GraniteMoE(Granite):
    """Granite 3 with experts, gate and up in one tensor."""

    architecture = "granitemoe"

    def metadata(self) -> dict[str, Any]:
        shared = self.config.first("shared_intermediate_size")
        return super().metadata() | ({"expert_shared_feed_forward_length": shared} if shared else {})

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        for part, kind in (
            ("block_sparse_moe.input_linear.weight", "exps"),
            ("shared_mlp.input_linear.weight", "shexp"),
        ):
            if name.endswith(part):
                layer = name.split(".")[2]
                half = tensor.shape[-2] // 2
                yield f"blk.{layer}.ffn_gate_{kind}.weight", tensor[..., :half, :]
                yield f"blk.{layer}.ffn_up_{kind}.weight", tensor[..., half:, :]
                return
        yield from super().convert(name, tensor)
