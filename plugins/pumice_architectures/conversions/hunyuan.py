"""Hunyuan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import (
    FLOAT32,
    SIGMOID,
    Conversion,
    LazyTensor,
    layer_of,
)
from pumice_architectures.conversions.deepseek import INDEXER, DeepSeek2


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
        metadata = super().metadata()
        for key, name in self.FIRST.items():
            values = c.first(name)
            if isinstance(values, list) and len(set(values)) > 1:
                raise c.unsupported(name, "the same number in all layers")
            metadata[key] = values[0] if isinstance(values, list) else values
        return metadata | dynamic_rope(self)

    def other_metadata(self) -> dict[str, Any]:
        return {} if self.folder.has("tokenizer.json") else {"tokenizer.ggml.bos_token_id": 127959}


def dynamic_rope(conversion: Conversion) -> dict[str, Any]:
    """Return the metadata of Hunyuan's long context: a larger RoPE base for all positions."""
    rope, dim = conversion.config.whole_rope, conversion.head_dim
    if rope.get("rope_type") not in ("dynamic", "xdrope") or rope.get("alpha") is None:
        return {}
    base = float(rope.get("rope_theta", 10000.0)) * float(rope["alpha"]) ** (dim / (dim - 2))
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
        return super().metadata() | dynamic_rope(self)

    def other_metadata(self) -> dict[str, Any]:
        metadata = {}
        if self.config.first("eod_token_id") is not None:
            metadata["tokenizer.ggml.eos_token_id"] = self.config.need("eod_token_id", least=0)
        ends = self.folder.optional_json("generation_config.json").get("eos_token_id")
        if isinstance(ends, list) and len(ends) > 1:
            metadata["tokenizer.ggml.eot_token_id"] = ends[0]
        return metadata


class HunyuanV3(Conversion):
    """Hunyuan 3."""

    architecture = "hy_v3"
    required = ("rope_theta", "router_scaling_factor")
    named_as = "glm4moe"
    more_names = {"model.layers.{}.post_attention_layernorm": "blk.{}.ffn_norm"}
    pre_tokenizers = ["hunyuan-dense"]
    n_draft_name = "num_nextn_predict_layers"
    numbers = {"expert_weights_scale": "router_scaling_factor"}
    flags = {"expert_weights_norm": "route_norm"}
    defaults = {"expert_weights_norm": True, "expert_weights_scale": 1.0}
    constants = {"expert_gating_func": SIGMOID}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        width = c.need("moe_intermediate_size") * (c.first("num_shared_experts") or 1)
        return super().metadata() | {"expert_shared_feed_forward_length": width}

    def rename(self, name: str) -> str | None:
        new_name = super().rename(name)
        drafts = layer_of(name) >= self.n_layer
        return new_name.replace(".final_layernorm.", ".shared_head.norm.") if new_name and drafts else new_name


class HunyuanVL(HunyuanDense):
    """The text model of Hunyuan VL: RoPE in sections (M-RoPE)."""

    architecture = "hunyuan_vl"

    def metadata(self) -> dict[str, Any]:
        rope, metadata = self.config.whole_rope, super().metadata()
        sections = rope.get("xdrope_section") or rope.get("mrope_section")
        if rope.get("rope_type") not in ("dynamic", "xdrope") or sections is None:
            return metadata
        n_ctx = self.config.need("max_position_embeddings")
        return metadata | {
            "rope.freq_base": float(rope["rope_theta"]),
            "rope.scaling.alpha": float(rope["alpha"]),
            "rope.scaling.factor": float(rope.get("factor", 1)),
            "rope.scaling.original_context_length": n_ctx,
            "context_length": n_ctx,
            "rope.dimension_sections": sections,
        }


class HunyuanV4(DeepSeek2):
    """Hunyuan 4: gated latent attention with sinks, hyper-connections, an indexer in some layers."""

    architecture = "hy_v4"
    named_as = "glm-dsa"
    pre_tokenizers = ["hy_v4", "hunyuan"]
    dropped = (*DeepSeek2.dropped, "model.mtp_layers.")
    constants = {"expert_gating_func": SIGMOID}
    without = (*DeepSeek2.without, "expert_group_count", "expert_group_used_count")
    integers = DeepSeek2.integers | {"hyper_connection.count": "hc_mult"}
    numbers = DeepSeek2.numbers | {
        "hyper_connection.epsilon": "hc_eps",
        "hyper_connection.magnitude": "hc_magnitude",
    }
    float32 = FLOAT32 | {"hc_attn_fn", "hc_ffn_fn", "output_hc_fn"}
    SPARSE = ("sparse_attention", "deepseek_sparse_attention")
    more_names = {
        "model.layers.{}.self_attn.linear_gate": "blk.{}.attn_gate",
        "model.layers.{}.self_attn.learnable_sink_param": "blk.{}.attn_sinks",
        **{
            f"model.layers.{{}}.hc_{part}_layer.hc_pre.hc_{kind}": f"blk.{{}}.hc_{short}_{kind}"
            for part, short in (("attn", "attn"), ("mlp", "ffn"))
            for kind in ("fn", "base", "scale")
        },
    }

    def metadata(self) -> dict[str, Any]:
        c = self.config
        metadata = super().metadata()
        if limit := float(c.first("swiglu_limit") or 0.0):
            metadata["swiglu_clamp_exp"] = [limit] * self.n_layer
        if (whole := self._indexing_layers()) is not None:
            metadata |= {key: c.need(name) for key, name in INDEXER.items()}
            metadata["attention.indexer.types"] = whole
        return metadata

    def _indexing_layers(self) -> list[bool] | None:
        """Return True per layer with its own indexer (others reuse the previous selection); None without indexers."""
        c = self.config
        if (types := c.first("indexer_types")) is not None:
            return [kind == "full" for kind in types[: self.n_layer]]
        kinds = [kind in self.SPARSE for kind in c.first("layer_types") or ()][: self.n_layer]
        return kinds if any(kinds) else None

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.startswith("model.hc_head."):
            yield f"output_{name.rpartition('.')[2].replace('hc_head', 'hc')}.weight", tensor
        elif ".hc_pre." in name or name.endswith(".learnable_sink_param"):
            yield self.names(f"{name}.weight"), tensor
        else:
            yield from super().convert(name, tensor)
