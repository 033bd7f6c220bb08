"""Hunyuan."""

from __future__ import annotations

from typing import Any

from pumice.plugin.convert import Conversion, ConvertError, layer_of


class HunyuanMoE(Conversion):
    """Hunyuan A13B."""

    architecture = "hunyuan-moe"
    vocabularies = ["bpe", "tiktoken"]
    pre_tokenizers = ["hunyuan"]
    integers = {"expert_shared_feed_forward_length": "intermediate_size"}
    drops_tied_output = True
    FIRST = {
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_used_count": "moe_topk",
        "expert_shared_count": "num_shared_expert",
    }

    def metadata(self) -> dict[str, Any]:
        c = self.config
        found = super().metadata()
        for key, name in self.FIRST.items():
            values = c.first(name)
            if isinstance(values, list) and len(set(values)) > 1:
                raise ConvertError(f"{c.path}: {name!r} differs from layer to layer")
            found[key] = values[0] if isinstance(values, list) else values
        return found | dynamic_rope(self, 1000)

    def other_metadata(self) -> dict[str, Any]:
        return {} if self.folder.has("tokenizer.json") else {"tokenizer.ggml.bos_token_id": 127959}


def dynamic_rope(conversion: Conversion, alpha: float) -> dict[str, Any]:
    """Hunyuan's long context: a larger base, once and for all."""
    rope, dim = conversion.config.whole_rope, conversion.head_dim
    if rope.get("rope_type") not in ("dynamic", "xdrope"):
        return {}
    base = float(rope.get("rope_theta", 10000.0)) * float(rope.get("alpha", alpha)) ** (dim / (dim - 2))
    return {
        "rope.freq_base": base,
        "rope.scaling.type": "none",
        "rope.scaling.factor": 1.0,
        "rope.scaling.original_context_length": 256 * 1024,
        "context_length": 256 * 1024,
    }


class HunyuanDense(Conversion):
    """Hunyuan without experts."""

    architecture = "hunyuan-dense"
    vocabularies = ["bpe", "tiktoken"]
    pre_tokenizers = ["hunyuan-dense"]
    without = ("expert_count",)
    drops_tied_output = True

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | dynamic_rope(self, 50)

    def other_metadata(self) -> dict[str, Any]:
        found = {}
        if self.config.first("eod_token_id") is not None:
            found["tokenizer.ggml.eos_token_id"] = self.config.need("eod_token_id", least=0)
        ends = self.folder.optional_json("generation_config.json").get("eos_token_id")
        if isinstance(ends, list) and len(ends) > 1:
            found["tokenizer.ggml.eot_token_id"] = ends[0]
        return found


class HunyuanV3(Conversion):
    """Hunyuan 3."""

    architecture = "hy_v3"
    named_as = "glm4moe"
    more_names = {"model.layers.{}.post_attention_layernorm": "blk.{}.ffn_norm"}
    pre_tokenizers = ["hunyuan-dense"]
    n_draft_name = "num_nextn_predict_layers"
    integers = {"expert_feed_forward_length": "moe_intermediate_size"}
    numbers = {"expert_weights_scale": "router_scaling_factor"}
    flags = {"expert_weights_norm": "route_norm"}
    defaults = {"expert_weights_norm": True, "expert_weights_scale": 1.0}
    constants = {"expert_gating_func": 2}  # sigmoid

    def metadata(self) -> dict[str, Any]:
        c = self.config
        width = c.need("moe_intermediate_size") * (c.first("num_shared_experts") or 1)
        return super().metadata() | {"expert_shared_feed_forward_length": width}

    def rename(self, name: str) -> str | None:
        found = super().rename(name)
        drafts = layer_of(name) >= self.n_layer
        return found.replace(".final_layernorm.", ".shared_head.norm.") if found and drafts else found


class HunyuanVL(HunyuanDense):
    """Hunyuan with images, text of it: rotary positions in sections."""

    architecture = "hunyuan_vl"

    def metadata(self) -> dict[str, Any]:
        rope, found = self.config.whole_rope, super().metadata()
        sections = rope.get("xdrope_section") or rope.get("mrope_section")
        if rope.get("rope_type") not in ("dynamic", "xdrope") or sections is None:
            return found
        n_ctx = self.config.need("max_position_embeddings")
        return found | {
            "rope.freq_base": float(rope["rope_theta"]),
            "rope.scaling.alpha": float(rope["alpha"]),
            "rope.scaling.factor": float(rope.get("factor", 1)),
            "rope.scaling.original_context_length": n_ctx,
            "context_length": n_ctx,
            "rope.dimension_sections": sections,
        }
