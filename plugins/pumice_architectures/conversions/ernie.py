"""ERNIE 4.5, with and without experts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pumice.plugin.convert import Conversion, LazyTensor
from pumice_architectures.conversions.llama import add_space_prefix


class Ernie45(Conversion):
    """ERNIE 4.5: queries, keys and values may be one matrix; so may gate and up."""

    architecture = "ernie4_5"
    required: tuple[str, ...] = ("rope_theta",)
    needed = {"use_bias": False}
    vocabularies = ["sentencepiece", "fast_sentencepiece", "bpe"]
    renames = {r"ernie\.": "model."}
    joined: ClassVar[Mapping[str, Sequence[str]]] = {"up_gate_proj": ("gate_proj", "up_proj")}

    def other_metadata(self) -> dict[str, Any]:
        return add_space_prefix(self)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        c = self.config
        if "qkv_proj" in name:
            n_head_kv = c.need("num_key_value_heads")
            sizes = (n * self.head_dim for n in (c.need("num_attention_heads"), n_head_kv, n_head_kv))
            for part, rows in zip("qkv", tensor.split(*sizes), strict=True):
                yield from super().convert(name.replace("qkv_proj", f"{part}_proj"), rows)
        else:
            yield from super().convert(name, tensor)


class Ernie45MoE(Ernie45):
    """ERNIE 4.5 with experts."""

    architecture = "ernie4_5-moe"
    required = (*Ernie45.required, "moe_num_shared_experts")
    integers = {
        "expert_count": "moe_num_experts",
        "expert_used_count": "moe_k",
        "interleave_moe_layer_step": "moe_layer_interval",
        "leading_dense_block_count": "moe_layer_start_index",
        "expert_shared_count": "moe_num_shared_experts",
    }
    dropped = ("model.mtp_",)
    joined = {}

    def metadata(self) -> dict[str, Any]:
        c = self.config
        metadata = super().metadata()
        if c.first("moe_num_shared_experts"):
            width = c.need("intermediate_size") // c.need("num_key_value_heads")
            metadata["expert_shared_feed_forward_length"] = width
        return metadata

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield from Conversion.convert(self, name, tensor)


class PaddleOCR(Ernie45):
    """The text model of PaddleOCR-VL."""

    architecture = "paddleocr"
