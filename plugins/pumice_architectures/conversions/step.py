"""Step 3.5: heads and limits per layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pumice.plugin.convert import Conversion, Folder, LazyTensor, layer_of
from pumice_architectures.conversions.rope_factors import llama3_factors

FLAT = tuple(f".{part}.weight" for part in ("g_proj", "moe.gate", "moe.up_proj", "moe.gate_proj", "moe.down_proj"))


class Step35(Conversion):
    """Step 3.5 and 3.7: sliding windows with more heads, experts, draft layers."""

    architecture = "step35"
    pre_tokenizers = ["deepseek-v3"]
    n_draft_name = "num_nextn_predict_layers"
    renames = {r"\.moe\.router_bias$": ".moe.router_bias.bias"}
    integers = {
        "attention.sliding_window": "sliding_window",
        "attention.value_length": "head_dim",
        "expert_count": "moe_num_experts",
        "expert_used_count": "moe_top_k",
        "expert_shared_feed_forward_length": "share_expert_dim",
        "moe_every_n_layers": "moe_every_n_layer",
    }
    numbers = {"expert_weights_scale": "moe_router_scaling_factor"}
    flags = {"expert_weights_norm": "norm_expert_weight"}
    defaults = {"attention.layer_norm_rms_epsilon": 1e-5, "moe_every_n_layers": 1}
    LIMITS = {"swiglu_clamp_exp": "swiglu_limits", "swiglu_clamp_shexp": "swiglu_limits_shared"}
    changes = {"norm.weight": lambda norm: norm + 1.0, **dict.fromkeys(FLAT, LazyTensor.squeeze)}

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        bases = self.config.first("rope_theta")
        if isinstance(bases, list):  # for layers without a window, and with one
            more = {"rope_theta": bases[0], "local_rope_theta": bases[1]}
            self.config = self.config | more

    def _of_layers(self, values: Sequence[Any] | None, otherwise: Any) -> list[Any]:
        """Return one value per layer; ``otherwise`` for layers missing in the configuration."""
        n = self.n_layer + self.n_draft
        return [*(values or ()), *[otherwise] * n][:n]

    def metadata(self) -> dict[str, Any]:
        c = self.config
        slides = [kind == "sliding_attention" for kind in self._of_layers(c.first("layer_types"), "full_attention")]
        other = c.first("attention_other_setting") or {}
        n_head, n_kv = c.need("num_attention_heads"), c.need("num_attention_groups")
        listed = str(c.first("moe_layers_enum") or "").split(",")
        metadata = super().metadata() | {
            "attention.head_count": [other.get("num_attention_heads", n_head) if s else n_head for s in slides],
            "attention.head_count_kv": [other.get("num_attention_groups", n_kv) if s else n_kv for s in slides],
            "attention.sliding_window_pattern": slides,
            "leading_dense_block_count": min((int(i) for i in listed if i.strip()), default=0),
        }
        for key, name in self.LIMITS.items():
            if (limits := c.first(name)) is not None:
                metadata[key] = [float(limit or 0.0) for limit in self._of_layers(limits, 0.0)]
        return metadata

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        parts = zip(
            self.config.first("layer_types") or (), self.config.first("partial_rotary_factors") or (), strict=False
        )
        part = next((float(part) for kind, part in parts if kind == "full_attention"), 1.0)
        for name, tensor in llama3_factors(self.config.whole_rope, int(self.head_dim * part)):
            padding = np.ones(self.head_dim // 2 - tensor.shape[0], np.float32)
            yield name, LazyTensor.of(np.concatenate([tensor.read(), padding]))

    def rename(self, name: str) -> str | None:
        new_name = super().rename(name)
        if new_name and layer_of(new_name) >= self.n_layer:
            new_name = new_name.replace(".transformer.", ".").replace("shared_head.output", "shared_head.head")
        return new_name
