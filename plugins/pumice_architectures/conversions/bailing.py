"""Ling (Bailing), and models with its layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pumice.plugin.convert import SIGMOID, Conversion, LazyTensor, layer_of
from pumice_architectures.conversions.deepseek import latent_parts, refuse_mscale
from pumice_architectures.conversions.llama import queries_keys_values


class BailingMoE(Conversion):
    """Ling 1: queries, keys and values in one matrix."""

    architecture = "bailingmoe"
    pre_tokenizers = ["bailingmoe"]
    integers = {
        "vocab_size": "vocab_size",
        "leading_dense_block_count": "first_k_dense_replace",
        "expert_shared_count": "num_shared_experts",
    }
    flags = {"expert_weights_norm": "norm_topk_prob"}
    constants = {"expert_weights_scale": 1.0}
    computed = {"rope.dimension_count": lambda self: self.head_dim}
    more_names = {"model.layers.{}.attention.dense": "blk.{}.attn_output"}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("query_key_value.weight"):
            c = self.config
            n_head, n_head_kv = c.need("num_attention_heads"), c.need("num_key_value_heads")
            parts = tensor.split(*(n * self.head_dim for n in (n_head, n_head_kv, n_head_kv)))
            yield from queries_keys_values(name, parts, n_head, n_head_kv)
        elif name == "lm_head.weight" and self.config.get("norm_head"):
            yield self.names(name), normed(tensor)
        else:
            yield from super().convert(name, tensor)


def normed(tensor: LazyTensor) -> LazyTensor:
    """Scale the columns to length 1."""

    def divide(x: Any) -> Any:
        return x / ((x * x).sum(axis=0, keepdims=True) ** 0.5 + 1e-7)

    return tensor.map(divide)


class BailingMoE2(Conversion):
    """Ling 2: adds draft layers."""

    architecture = "bailingmoe2"
    pre_tokenizers = ["bailingmoe2"]
    n_draft_name = "num_nextn_predict_layers"
    renames = {r"\.expert_bias$": ".expert_bias.bias"}
    integers = BailingMoE.integers | {"expert_shared_feed_forward_length": "moe_shared_expert_intermediate_size"}
    numbers = {"expert_weights_scale": "routed_scaling_factor"}
    flags = BailingMoE.flags
    partial = 0.5  # rotated part of a head

    def metadata(self) -> dict[str, Any]:
        c = self.config
        n_shared = c.need("moe_intermediate_size") * c.need("num_shared_experts", least=0)
        made = {"rope.dimension_count": self.n_rot(self.partial)}
        return {"expert_shared_feed_forward_length": n_shared} | super().metadata() | made


class SarvamMoE(BailingMoE2):
    """Sarvam: RoPE rotates whole heads; experts' biases are centred at 0."""

    pre_tokenizers = ["sarvam-moe"]
    changes = {".expert_bias.bias": lambda bias: bias.map(lambda x: x - x.mean())}

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"rope.dimension_count": self.head_dim}


class BailingMoE3(Conversion):
    """Ling 3: delta attention, latent attention in the last layer of each group, attention gates."""

    architecture = "bailingmoe3"
    named_as = "kimi-linear"
    pre_tokenizers = ["bailingmoe2"]
    n_draft_name = "num_nextn_predict_layers"
    renames = {
        r"\.expert_bias$": ".expert_bias.bias",
        r"\.dt_bias$": ".dt_proj.bias",
        r"\.attention\.(?!dense)": ".self_attn.",
    }
    more_names = {"model.layers.{}.final_layernorm": "blk.{}.layer_output_norm"}
    integers = {
        "vocab_size": "vocab_size",
        "ssm.conv_kernel": "short_conv_kernel_size",
        "kda.head_dim": "head_dim",
        "attention.q_lora_rank": "q_lora_rank",
        "attention.kv_lora_rank": "kv_lora_rank",
        "attention.value_length_mla": "v_head_dim",
        "rope.dimension_count": "qk_rope_head_dim",
        "expert_shared_feed_forward_length": "moe_shared_expert_intermediate_size",
        "leading_dense_block_count": "first_k_dense_replace",
    }
    numbers = {"expert_weights_scale": "routed_scaling_factor", "kda.gate_lower_bound": "kda_lower_bound"}
    flags = {"expert_weights_norm": "norm_topk_prob", "kda.safe_gate": "kda_safe_gate"}
    LIMITS = {"swiglu_clamp_exp": "expert_swiglu_limit_list", "swiglu_clamp_shexp": "share_expert_swiglu_limit_list"}
    needed = {"no_kda_lora": True, "kda_safe_gate": True, "gated_attention_proj_granularity_type": "head_wise"}
    required: tuple[str, ...] = tuple(needed)

    def _is_whole(self, layer: int) -> bool:
        """Return True if a layer attends to all tokens."""
        size = self.config.need("layer_group_size")
        return layer >= self.n_layer // size * size or (layer + 1) % size == 0

    def metadata(self) -> dict[str, Any]:
        c = self.config
        n = self.n_layer + self.n_draft
        rank, n_rot = c.need("kv_lora_rank"), c.need("qk_rope_head_dim")
        metadata = super().metadata() | {
            "attention.head_count_kv": [int(self._is_whole(i)) for i in range(n)],
            "attention.key_length": rank + n_rot,
            "attention.key_length_mla": c.need("qk_nope_head_dim") + n_rot,
            "expert_shared_count": c.first("num_shared_experts") or 1,
        }
        for key, name in self.LIMITS.items():
            if (limits := c.first(name)) is not None:
                metadata[key] = [float(limit or 0.0) for limit in [*limits, *[0.0] * n][:n]]
        return metadata

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        layer = layer_of(name)
        if name.endswith(".kv_b_proj.weight"):
            yield from latent_parts(self, name, tensor)
        elif name.endswith(".f_proj.weight"):
            yield f"blk.{layer}.ssm_f_a.weight", tensor
        elif name.endswith(".g_proj.weight"):
            yield f"blk.{layer}.{'attn_gate' if self._is_whole(layer) else 'ssm_g_a'}.weight", tensor
        elif name.endswith(".A_log"):
            yield self.names(name), tensor.map(np.exp).reshape(-1, 1)
        elif name.endswith("_conv1d.weight"):
            yield self.names(name), tensor.reshape(1, tensor.shape[0], 1, tensor.shape[-1])
        else:
            yield from super().convert(name, tensor)


class BailingHybrid(BailingMoE3):
    """Ling 3 as transformers has it: a configuration with other names, and draft layers that may be missing."""

    flags = BailingMoE3.flags | {"expert_weights_norm": "moe_renormalize"}
    integers = BailingMoE3.integers | {"expert_group_count": "num_expert_group"}
    inner_eps = 1e-6
    constants = {"expert_gating_func": SIGMOID}
    needed = {"kda_safe_gate": True}
    required = tuple(needed)

    def check_config(self) -> None:
        super().check_config()
        refuse_mscale(self.config)

    @property
    def n_draft(self) -> int:
        return super().n_draft if max(map(layer_of, self.folder.tensors)) >= self.n_layer else 0


class BailingMoE3VL(BailingMoE3):
    """The text model of Ling 3 VL."""

    required = (*BailingMoE3.required, "mrope_section")
    dropped = ("linear_proj",)

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"rope.dimension_sections": [*self.config["mrope_section"][:3], 0]}
