"""Projector of Gemma 3n: its encoder of images, MobileNetV5."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from pumice.plugin.convert import ConvertError, GGMLType, LazyTensor, ProjectorConversion

BLOCK = re.compile(r"^model\.vision_tower\.timm_model\.blocks\.(\d+\.\d+\..+)$")


class Gemma3n(ProjectorConversion):
    """Gemma 3n. Pixels are not normalized, and the keys of a transformer have values that nothing reads."""

    projector_type = "gemma3nv"
    type_key = "vision.projector_type"
    activation = ""
    prefixes: tuple[str, ...] = ("vision_tower.", "embed_vision.")
    types = {"stem": GGMLType.F32}
    renames: ClassVar[dict[str, str]] = {r"^": "model."}
    more_names: ClassVar[dict[str, str]] = {
        "model.embed_vision.embedding": "mm.embedding",
        "model.embed_vision.embedding_projection": "mm.input_projection",
        "model.embed_vision.hard_embedding_norm": "mm.hard_emb_norm",
        "model.embed_vision.soft_embedding_norm": "mm.soft_emb_norm",
    }

    def count_layers(self) -> int:
        return 128  # llama.cpp's converter; the encoder has no blocks of a transformer

    def image_size(self) -> int:
        size = self.processor.get("size") or {"height": 768}
        side = size.get("height") if isinstance(size, dict) else None
        return (self.vision | {"height": side}).need("height")

    def of_vision(self) -> dict[str, Any]:
        size, n_rows = self.image_size(), int(self.processor.get("image_seq_length", 256))
        if not 0 < n_rows <= size:
            raise ConvertError(f"{self.folder.path}: 'image_seq_length' is {n_rows}, for images of {size} pixels")
        return {
            "projection_dim": self.config.need("hidden_size"),
            "image_size": size,
            "patch_size": size // n_rows,
            "embedding_length": self.n_embd,
            "feed_forward_length": 4 * int(self.vision.first("intermediate_size") or 2048),
            "block_count": self.n_layer,
            "attention.head_count": int(self.vision.first("num_attention_heads") or 8),
            "attention.layer_norm_epsilon": self.epsilon(),
            "image_mean": [0.0] * 3,
            "image_std": [1.0] * 3,
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if match := BLOCK.match(name):
            yield f"v.blk.{match[1]}", tensor
        elif name.endswith("conv_stem.conv.bias"):
            yield self.names(name), tensor.reshape(1, -1, 1, 1)
        else:
            yield self.names(name), tensor
