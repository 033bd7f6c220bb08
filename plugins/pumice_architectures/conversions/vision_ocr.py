"""Projectors of DeepSeek-OCR, DeepSeek-OCR 2 and Unlimited-OCR: the encoder of Segment Anything, and another one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pumice.plugin.convert import Folder, GGMLType, LazyTensor, ProjectorConversion, in_layers


class DeepSeekOCR(ProjectorConversion):
    """DeepSeek-OCR, whose configuration has the sizes of both encoders in ``width``."""

    projector_type = "deepseekocr"
    prefixes: tuple[str, ...] = ("sam_model.", "vision_model.", "projector.", "image_newline", "view_seperator")
    types = {r"\.pos_embd\.|\.attn\.pos_[hw]\.|\.neck\.|\.net_": GGMLType.F32}
    renames: ClassVar[dict[str, str]] = {
        r"(pos_embed|rel_pos_[hw])$": r"\1.weight",
        r"^": "model.",
    }
    most_tiles = 9
    width_key = "clip-l-14-224"

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        widths = self.vision.section("width")
        self.sam = widths.section("sam_vit_b")
        self.vision |= self.second(widths.section(self.width_key))
        self.n_layer = self.vision.need("layers")

    def count_layers(self) -> int:
        return 1  # they are counted when their configuration is read

    def second(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of the configuration for the second encoder."""
        # llama.cpp's converter takes the heads for the width of the feed-forward; readers take it from the tensors.
        heads = values.get("heads", 1)
        return {**values, "hidden_size": values.get("width"), "num_heads": heads, "intermediate_size": 4 * heads}

    def of_vision(self) -> dict[str, Any]:
        values = super().of_vision()
        n_rows = math.isqrt(int(self.processor.get("image_seq_length", 256)))
        merge = values["image_size"] // values["patch_size"] // max(n_rows, 1)
        more = {"projector.scale_factor": merge} if merge not in (0, 4) else {}
        return (
            values
            | more
            | {
                "window_size": int(self.vision.first("window_size") or 14),
                "preproc_min_tiles": 2,
                "preproc_max_tiles": self.most_tiles,
                "sam.block_count": self.sam.need("layers"),
                "sam.embedding_length": self.sam.need("width"),
                "sam.head_count": self.sam.need("heads"),
            }
        )

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield self.names(name), tensor.reshape(1, -1) if name.endswith("view_seperator") else tensor


class UnlimitedOCR(DeepSeekOCR):
    """Unlimited-OCR (Baidu 2026)."""

    most_tiles = 32


class DeepSeekOCR2(DeepSeekOCR):
    """DeepSeek-OCR 2, whose second encoder is a Qwen2 of sizes that its code has."""

    projector_type = "deepseekocr2"
    prefixes = ("sam_model.", "qwen2_model.", "projector.", "view_seperator")
    most_tiles = 6
    width_key = "qwen2-0-5b"
    more_names: ClassVar[dict[str, str]] = {
        "model.qwen2_model.query_768": "v.resample_query_768",
        "model.qwen2_model.query_1024": "v.resample_query_1024",
        "model.qwen2_model.model.model.norm": "v.post_ln",
        **in_layers("model.qwen2_model.model.model.layers.{}.", "v.blk.{}.", {
            "input_layernorm": "ln1", "post_attention_layernorm": "ln2", "self_attn.q_proj": "attn_q",
            "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_out",
            "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
        }),
    }  # fmt: skip

    def second(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        usual = {"patch_size": 16, "intermediate_size": 4864, "num_attention_heads": 14, "layers": 24}
        return {"hidden_size": values.get("dim")} | {
            key: self.vision.first(key) or value for key, value in usual.items()
        }

    def of_vision(self) -> dict[str, Any]:
        return super().of_vision() | {"attention.head_count_kv": 2}
