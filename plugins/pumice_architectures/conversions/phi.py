"""Phi 2 to 4."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, ConvertError, LazyTensor

logger = logging.getLogger("pumice")


class Phi2(Conversion):
    """Phi 1, 1.5 and 2: parallel blocks with biases and partial rotary positions."""

    architecture = "phi2"
    hidden_act = "gelu_new"
    pre_tokenizers = ["phi-2", "gpt-2"]
    implied = {"rope.freq_base": 10000.0}
    without = ("attention.head_count_kv",)

    def metadata(self) -> dict[str, Any]:
        metadata = super().metadata()
        n_embd, n_head = metadata["embedding_length"], metadata["attention.head_count"]
        part = float(self.config.rope.get("partial_rotary_factor", 0.5))
        return metadata | {
            "feed_forward_length": 4 * n_embd,
            "attention.head_count_kv": n_head,
            "rope.dimension_count": int(part * n_embd) // n_head,
        }

    def other_metadata(self) -> dict[str, Any]:
        return {"tokenizer.ggml.add_bos_token": False}


class Phi3(Conversion):
    """Phi 3 and 4: RoPE factors for short and for long contexts."""

    architecture = "phi3"
    vocabularies = ["sentencepiece", "fast_sentencepiece", "bpe"]
    pre_tokenizers = ["dbrx", "gpt-2"]

    def metadata(self) -> dict[str, Any]:
        metadata, rope = super().metadata(), self.config.rope
        trained = int(rope.get("original_max_position_embeddings") or metadata["context_length"])
        magnitude = metadata.get("rope.scaling.attn_factor", 1.0)
        if rope.get("rope_type") == "yarn":
            magnitude = 1 + 0.1 * math.log(max(metadata["context_length"] / trained, 1.0))
        metadata = {key: value for key, value in metadata.items() if not key.startswith("rope.scaling")} | {
            "rope.scaling.original_context_length": trained,
            "rope.dimension_count": self._n_rot,
            "attention.sliding_window": self.config.first("sliding_window") or 0,
        }
        if metadata["attention.sliding_window"]:
            metadata["attention.sliding_window_pattern"] = [True] * self.n_layer
        return metadata | ({"rope.scaling.attn_factor": magnitude} if rope.get("long_factor") else {})

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        for length in ("long", "short"):
            factors = self.config.rope.get(f"{length}_factor")
            if not factors:
                continue
            if not isinstance(factors, list) or 2 * len(factors) != self._n_rot:
                raise ConvertError(f"{self.config.path}: '{length}_factor' must list {self._n_rot // 2} numbers")
            yield f"rope_factors_{length}.weight", LazyTensor.of(factors)

    @property
    def _n_rot(self) -> int:
        part = float(self.config.rope.get("partial_rotary_factor", 1.0))
        return int(part * self.config.need("hidden_size")) // self.config.need("num_attention_heads")


class PhiMoE(Phi3):
    """Phi 3.5 with experts."""

    architecture = "phimoe"

    def check_config(self) -> None:
        super().check_config()
        logger.warning("%s: experts get weights as in llama.cpp, not by SparseMixer; results differ from the original "
                       "model's", self.config.path)  # fmt: skip
