"""Cohere's Command models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, LazyTensor


class CommandR(Conversion):
    """Command R: no scaling of rotary positions, and a longer context than the configuration has."""

    architecture = "command-r"
    pre_tokenizers = ("command-r",)

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {
            "context_length": self.config.need("model_max_length", "max_position_embeddings"),
            "logit_scale": float(self.config.first("logit_scale") or 0.0625),
            "rope.scaling.type": "none",
        }


class Cohere2(Conversion):
    """Command R7B and Command A: windows; without biases, which are zero where there are some."""

    architecture = "cohere2"
    pre_tokenizers = ("command-r",)

    def metadata(self) -> dict[str, Any]:
        head_dim = self.config.need("hidden_size") // self.config.need("num_attention_heads")
        return super().metadata() | {
            "logit_scale": float(self.config.first("logit_scale") or 0.0625),
            "attention.sliding_window": self.config.need("sliding_window"),
            "vocab_size": self.config.need("vocab_size"),
            "rope.dimension_count": int(float(self.config.first("rotary_pct") or 1.0) * head_dim),
            "rope.scaling.type": "none",
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if not name.endswith(".bias"):
            yield from super().convert(name, tensor)
