"""DeepSeek 2 and 3, and models that are built as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, LazyTensor

LAYER = re.compile(r"model\.layers\.(\d+)\.")


class DeepSeek2(Conversion):
    """Latent attention: its compressed keys and values are the one head that the cache holds."""

    architecture = "deepseek2"
    pre_tokenizers = ("deepseek-v3", "deepseek-llm")

    def metadata(self) -> dict[str, Any]:
        c = self.config
        rank, n_rot = c.need("kv_lora_rank"), c.need("qk_rope_head_dim")
        has_experts = c.first("n_routed_experts") is not None
        found = super().metadata() | {
            "attention.layer_norm_rms_epsilon": float(c.first("rms_norm_eps") or 1e-6),
            "leading_dense_block_count": c.need("first_k_dense_replace", least=0) if has_experts else self.n_layer,
            "vocab_size": c.need("vocab_size"),
            "attention.head_count_kv": 1,
            "attention.kv_lora_rank": rank,
            "attention.key_length": rank + n_rot,
            "attention.value_length": rank,
            "attention.key_length_mla": c.need("qk_nope_head_dim") + n_rot,
            "attention.value_length_mla": c.need("v_head_dim"),
            "expert_feed_forward_length": c.need("moe_intermediate_size", "intermediate_size"),
            "expert_shared_count": c.first("n_shared_experts") or 0,
            "rope.dimension_count": n_rot,
        }
        if c.first("q_lora_rank") is not None:
            found["attention.q_lora_rank"] = c.need("q_lora_rank")
        if c.first("routed_scaling_factor") is not None:
            found["expert_weights_scale"] = float(c["routed_scaling_factor"])
        if c.first("norm_topk_prob"):
            found["expert_weights_norm"] = True
        if c.rope.get("mscale_all_dim") is not None:
            found["rope.scaling.yarn_log_multiplier"] = 0.1 * float(c.rope["mscale_all_dim"])
        return found

    def rename(self, name: str) -> str | None:
        layer = LAYER.match(name)
        if layer and int(layer[1]) >= self.n_layer:  # layers that draft
            return None
        return None if name == "lm_head.weight" and self.config.get("tie_word_embeddings") else super().rename(name)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("kv_b_proj.weight"):
            n_key, n_value = self.config.need("qk_nope_head_dim"), self.config.need("v_head_dim")
            heads = tensor.reshape(-1, n_key + n_value, tensor.shape[-1])
            keys, values = heads.split(n_key, n_value, axis=1)
            yield from super().convert(name.replace("kv_b_proj", "k_b_proj"), keys.transpose(0, 2, 1))
            yield from super().convert(name.replace("kv_b_proj", "v_b_proj"), values)
        else:
            yield from super().convert(name, tensor)
