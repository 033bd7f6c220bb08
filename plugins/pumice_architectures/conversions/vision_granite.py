"""The projector of Granite 4 Vision."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pumice.plugin.convert import Folder, ProjectorConversion, in_layers
from pumice_architectures.conversions.granite import vision_streams
from pumice_architectures.conversions.vision import SIGLIP


class Granite4Vision(ProjectorConversion):
    """SigLIP, and a Q-Former over windows for each layer of the language model that embeddings are added to."""

    projector_type = "granite4_vision"
    unused = (".head.",)
    prefixes = ("vision_tower.", "layerwise_projectors.", "spatial_projectors.", "image_newline")
    renames: ClassVar[dict[str, str]] = {**SIGLIP, r"\.qformer\.encoder\.layer\.0\.": "."}
    more_names: ClassVar[dict[str, str]] = {
        "image_newline": "v.image_newline",
        **in_layers("projector.{}.", "v.proj_blk.{}.", {
            "image_positions": "img_pos", "query": "query", "norm": "norm", "out_linear": "linear",
            "qformer.layernorm": "post_norm", "attention.attention.query": "self_attn_q",
            "attention.attention.key": "self_attn_k", "attention.attention.value": "self_attn_v",
            "attention.output.dense": "self_attn_out", "attention.output.LayerNorm": "self_attn_norm",
            "crossattention.attention.query": "cross_attn_q", "crossattention.attention.key": "cross_attn_k",
            "crossattention.attention.value": "cross_attn_v", "crossattention.output.dense": "cross_attn_out",
            "crossattention.output.LayerNorm": "cross_attn_norm", "intermediate_query.dense": "ffn_up",
            "output_query.dense": "ffn_down", "output_query.LayerNorm": "ffn_norm",
        }),
    }  # fmt: skip

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.streams = vision_streams(self.config)
        self.n_layer = max(self.n_layer, len(self.streams))

    def of_vision(self) -> dict[str, Any]:
        rate = re.fullmatch(r"(\d{1,4})/(\d{1,4})", str(self.config.first("downsample_rate")))
        if not rate:
            raise self.config.unsupported("downsample_rate", "two numbers, such as '4/8'")
        sizes = self.config.get("image_grid_pinpoints", [])
        return super().of_vision() | {
            "block_count": self.count_layers(),
            "preproc_image_size": self.image_size(),
            "projector.query_side": int(rate[1]),
            "projector.window_side": int(rate[2]),
            "feature_layer": [stream.block for stream in self.streams],
            "projector.spatial_offsets": [stream.offset for stream in self.streams],
            "image_grid_pinpoints": [side for height, width in sizes for side in (width, height)],
        }

    def rename(self, name: str) -> str | None:
        renamed = super().rename(name)
        for i, stream in enumerate(self.streams):
            if renamed and renamed.startswith(stream.projector):
                return f"projector.{i}.{renamed.removeprefix(stream.projector)}"
        return renamed
