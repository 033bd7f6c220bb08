"""MiMo 2: sliding windows with sinks, experts, three draft layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, ConvertError, LazyTensor


class MiMo2(Conversion):
    """MiMo 2; the number of draft layers follows from the tensors, not the configuration."""

    architecture = "mimo2"
    needed = {"norm_topk_prob": True}
    pre_tokenizers = ["qwen2"]
    integers = {
        "attention.sliding_window": "sliding_window",
        "attention.value_length": "v_head_dim",
        "expert_count": "n_routed_experts",
    }
    numbers = {"attention.value_scale": "attention_value_scale", "expert_weights_scale": "routed_scaling_factor"}
    more_names = {"model.layers.{}.final_layernorm": "blk.{}.layer_output_norm"}
    N_DRAFT = 3

    @property
    def n_draft(self) -> int:
        return self.N_DRAFT

    def metadata(self) -> dict[str, Any]:
        c = self.config
        for name in ("head_dim", "num_attention_heads", "v_head_dim"):
            c.expect(f"swa_{name}", c.first(name))
        slides = [int(slides_here) for slides_here in c.first("hybrid_layer_pattern") or ()] + [1] * self.n_draft
        of_kind = (c.need("num_key_value_heads"), c.need("swa_num_key_value_heads"))
        return super().metadata() | {
            "attention.head_count_kv": [of_kind[slides_here] for slides_here in slides],
            "attention.sliding_window_pattern": slides,
            "attention.layer_norm_rms_epsilon": float(c.first("layernorm_epsilon", "rms_norm_eps") or 1e-5),
            "rope.dimension_count": self.n_rot(),
            "nextn_predict_layers": self.n_draft,
        }

    def rename(self, name: str) -> str | None:
        new_name = super().rename(name)
        if new_name and new_name.startswith("model.mtp.layers."):
            number, _, rest = new_name.removeprefix("model.mtp.layers.").partition(".")
            new_name = f"model.layers.{self.n_layer + int(number)}.{rest}"
        return f"{new_name}.weight" if new_name and new_name.endswith("attention_sink_bias") else new_name

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("qkv_proj.weight") and self.config.get("quantization_config"):
            raise ConvertError(f"{self.folder.path}: {name!r}: unknown layout of quantization scales")
        yield from super().convert(name, tensor)
