"""EXAONE 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, LazyTensor, sliding_layers
from pumice_architectures.conversions.llama import llama3_factors


class Exaone4(Conversion):
    """EXAONE 4: windows in the layers that a pattern of letters or a period names."""

    architecture = "exaone4"
    pre_tokenizers = ("exaone4", "gpt-2")

    def metadata(self) -> dict[str, Any]:
        found = super().metadata() | {"vocab_size": self.config.need("vocab_size")}
        if self.config.first("sliding_window") is None:
            return found
        found["attention.sliding_window"] = self.config.need("sliding_window")
        layers = sliding_layers(self.config) or self._pattern()
        return found | ({"attention.sliding_window_pattern": layers} if layers else {})

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        rope = self.config.rope
        head_dim = self.config.first("head_dim") or self.config.need("hidden_size") // self.config.need(
            "num_attention_heads"
        )
        yield from llama3_factors(rope.get("full_attention", rope), head_dim, default_factor=16.0)

    def _pattern(self) -> list[bool]:
        pattern = self.config.first("sliding_window_pattern")
        if isinstance(pattern, str) and pattern:  # LLLG: L is a layer with a window
            return [pattern[i % len(pattern)] == "L" for i in range(self.n_layer)]
        if isinstance(pattern, int) and pattern > 0:
            return [(i + 1) % pattern != 0 for i in range(self.n_layer)]
        return []
