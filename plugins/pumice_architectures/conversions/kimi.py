"""Kimi Linear: delta attention in most layers, latent attention in the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, LazyTensor, layer_of
from pumice_architectures.conversions.deepseek import latent_parts
from pumice_architectures.conversions.mamba import decay


class KimiLinear(Conversion):
    """Kimi Linear."""

    architecture = "kimi-linear"
    vocabularies = ["bpe", "tiktoken"]
    pre_tokenizers = ["kimi-k2"]
    renames = {r"\.dt_bias$": ".dt_proj.bias"}
    integers = {
        "vocab_size": "vocab_size",
        "attention.q_lora_rank": ("q_lora_rank", "n_lora_q"),
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_shared_count": "num_shared_experts",
        "leading_dense_block_count": "first_k_dense_replace",
    }
    numbers = {"expert_weights_scale": "routed_scaling_factor"}
    EXPERTS = {"w1": "gate", "w2": "down", "w3": "up"}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        linear = c["linear_attn_config"]
        whole = set(linear["full_attn_layers"])  # counted from 1
        rank, n_rot = c.need("kv_lora_rank", "n_lora_kv"), c.need("qk_rope_head_dim", "n_rot")
        return super().metadata() | {
            "attention.head_count_kv": [int(i + 1 in whole) for i in range(self.n_layer)],
            "ssm.conv_kernel": linear["short_conv_kernel_size"],
            "kda.head_dim": linear["head_dim"],
            "attention.kv_lora_rank": rank,
            "rope.dimension_count": n_rot,
            "attention.key_length": rank + n_rot,
            "attention.key_length_mla": c.need("qk_nope_head_dim") + n_rot,
            "attention.value_length_mla": c.need("v_head_dim"),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        part = name.split("_conv1d.")[0][-1:]
        if name.endswith("_conv1d.weight") and part in "qkv":
            tensor = tensor.reshape(1, tensor.shape[0], 1, tensor.shape[-1])
        if name.endswith(".A_log"):
            tensor = decay(tensor)
        if ".block_sparse_moe.experts." in name:
            kind = self.EXPERTS[name.split(".")[-2]]
            yield f"blk.{layer_of(name)}.ffn_{kind}_exps.weight", tensor
        elif name.endswith("kv_b_proj.weight"):
            yield from latent_parts(self, name, tensor)
        else:
            yield from super().convert(name, tensor)
