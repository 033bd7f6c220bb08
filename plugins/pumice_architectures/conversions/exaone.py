"""EXAONE, all generations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import SIGMOID, Conversion, LazyTensor, sliding_layers
from pumice_architectures.conversions.drafting import draft_name
from pumice_architectures.conversions.rope_factors import FACTOR, llama3_factors


class Exaone(Conversion):
    """EXAONE 3."""

    architecture = "exaone"
    pre_tokenizers = ["exaone", "gpt-2"]
    default_factor = FACTOR  # default for RoPE scaling of type llama3

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"rope.dimension_count": self.n_rot()}

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield from llama3_factors(self.config.whole_rope, self.head_dim, self.default_factor)


class Exaone4(Exaone):
    """EXAONE 4: sliding windows in layers given by a pattern of letters or by a period."""

    architecture = "exaone4"
    pre_tokenizers = ["exaone4", "gpt-2"]
    integers = {"vocab_size": "vocab_size"}
    default_factor = 16.0

    def metadata(self) -> dict[str, Any]:
        metadata = Conversion.metadata(self)
        if self.config.first("sliding_window") is None:
            return metadata
        metadata["attention.sliding_window"] = self.config.need("sliding_window")
        layers = sliding_layers(self.config) or self._pattern()
        return metadata | ({"attention.sliding_window_pattern": layers} if layers else {})

    def _pattern(self) -> list[bool]:
        pattern = self.config.first("sliding_window_pattern")
        if isinstance(pattern, str) and pattern:  # LLLG: L marks a layer with a window
            return [pattern[i % len(pattern)] == "L" for i in range(self.n_layer)]
        if isinstance(pattern, int) and pattern > 0:
            return [(i + 1) % pattern != 0 for i in range(self.n_layer)]
        return []


class ExaoneMoE(Exaone4):
    """K-EXAONE; draft layers are ``mtp.*`` in checkpoints."""

    architecture = "exaone-moe"
    needed = {"scoring_func": "sigmoid"}
    required = ("norm_topk_prob", "routed_scaling_factor")
    pre_tokenizers = ["exaone-moe"]
    n_draft_name = "num_nextn_predict_layers"
    integers = Exaone4.integers | {"expert_shared_count": "num_shared_experts"}
    numbers = {"expert_weights_scale": "routed_scaling_factor"}
    flags = {"expert_weights_norm": "norm_topk_prob"}
    constants = {"rope.scaling.type": "none"}
    defaults = {"expert_gating_func": SIGMOID}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        return super().metadata() | {
            "nextn_predict_layers": self.n_draft,
            "leading_dense_block_count": c.first("first_k_dense_replace", "first_last_k_dense_replace") or 0,
            "expert_shared_feed_forward_length": c.need("moe_intermediate_size") * c.need("num_shared_experts"),
        }

    def rename(self, name: str) -> str | None:
        new_name = super().rename(name)
        return new_name and draft_name(new_name, self.n_layer)


class Exaone45(Exaone4):
    """The text model of EXAONE 4.5."""

    n_draft_name = "num_nextn_predict_layers"

    def rename(self, name: str) -> str | None:
        new_name = super().rename(name)
        return new_name and draft_name(new_name, self.n_layer)
