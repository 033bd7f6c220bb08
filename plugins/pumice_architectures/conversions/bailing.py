"""Ling (Bailing), and models built as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.plugin.convert import Conversion, LazyTensor, layer_of


class BailingMoE(Conversion):
    """Ling 1: queries, keys and values in one matrix."""

    architecture = "bailingmoe"
    pre_tokenizers = ["bailingmoe"]
    integers = {
        "vocab_size": "vocab_size",
        "leading_dense_block_count": "first_k_dense_replace",
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_shared_count": "num_shared_experts",
    }
    flags = {"expert_weights_norm": "norm_topk_prob"}
    constants = {"expert_weights_scale": 1.0}

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"rope.dimension_count": self.head_dim}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("query_key_value.weight"):
            c = self.config
            n_head, n_head_kv = c.need("num_attention_heads"), c.need("num_key_value_heads")
            q, k, v = tensor.split(*(n * self.head_dim for n in (n_head, n_head_kv, n_head_kv)))
            parts = {"q": q.interleave_rope(n_head), "k": k.interleave_rope(n_head_kv), "v": v}
            for part, rows in parts.items():
                yield f"blk.{layer_of(name)}.attn_{part}.weight", rows
        elif name.endswith("attention.dense.weight"):
            yield f"blk.{layer_of(name)}.attn_output.weight", tensor
        elif name == "lm_head.weight" and self.config.get("norm_head"):
            yield self.names(name), normed(tensor)
        else:
            yield from super().convert(name, tensor)


def normed(tensor: LazyTensor) -> LazyTensor:
    """Columns of length 1."""

    def divide(x: Any) -> Any:
        return x / ((x * x).sum(axis=0, keepdims=True) ** 0.5 + 1e-7)

    return tensor.map(divide)


class BailingMoE2(Conversion):
    """Ling 2: layers for drafting."""

    architecture = "bailingmoe2"
    pre_tokenizers = ["bailingmoe2"]
    n_draft_name = "num_nextn_predict_layers"
    renames = {r"\.expert_bias$": ".expert_bias.bias"}
    integers = BailingMoE.integers | {"expert_shared_feed_forward_length": "moe_shared_expert_intermediate_size"}
    numbers = {"expert_weights_scale": "routed_scaling_factor"}
    flags = BailingMoE.flags
    partial = 0.5  # of a head is turned

    def metadata(self) -> dict[str, Any]:
        c = self.config
        n_shared = c.need("moe_intermediate_size") * c.need("num_shared_experts", least=0)
        made = {"rope.dimension_count": self.n_rot(self.partial)}
        return {"expert_shared_feed_forward_length": n_shared} | super().metadata() | made


class SarvamMoE(BailingMoE2):
    """Sarvam: whole heads are turned, experts' biases are around 0."""

    pre_tokenizers = ["sarvam-moe"]

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"rope.dimension_count": self.head_dim}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith(".expert_bias.bias"):
            tensor = tensor.map(lambda x: x - x.mean())
        yield from super().convert(name, tensor)
