"""Projectors of GLM-V and of models that read documents."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from pumice.plugin.convert import Folder, LazyTensor, ProjectorConversion
from pumice_architectures.conversions.vision import Pixtral, Qwen2VL, Qwen3VL, gelu_or_silu


class GLM4V(Qwen3VL):
    """GLM-4.1V to 4.6V, and GLM-OCR."""

    projector_type = "glm4v"
    more_names: ClassVar[dict[str, str]] = {}
    eps_key, usual_eps = "rms_norm_eps", 1e-5

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.activation = gelu_or_silu(self.vision, "silu")

    def image_size(self) -> int:
        return self.side("image_size")

    def of_vision(self) -> dict[str, Any]:
        # Limits are of two frames, which one image fills.
        limits = {key: n // 2 if key.startswith("image") else n for key, n in self.limits().items()}
        merge = self.vision.first("spatial_merge_size")
        merges = {} if merge in (None, 2) else {"spatial_merge_size": int(merge)}
        return ProjectorConversion.of_vision(self) | limits | merges


class PaddleOCR(ProjectorConversion):
    """PaddleOCR-VL, whose further embeddings of positions and pooling head are not used."""

    projector_type = "paddleocr"
    prefixes = ("visual.", "mlp_AR.", "projector.")
    renames: ClassVar[dict[str, str]] = {r"^visual\.": "vision_tower.", r"^projector\.": "mlp_AR."}

    unused = ("packing_position_embedding", "vision_model.head")

    def image_size(self) -> int:
        most = (self.vision | self.pixel_limits()).need("image_max_pixels")
        return math.isqrt(most)  # any size is encoded; the value of llama.cpp's converter

    def of_vision(self) -> dict[str, Any]:
        return super().of_vision() | self.pixel_limits()


class MiniCPMV46(ProjectorConversion):
    """MiniCPM-V 4.6."""

    projector_type = "minicpmv4_6"
    prefixes = ("vision_tower.", "merger.")
    renames: ClassVar[dict[str, str]] = {
        r"^vision_tower\.(?!vision_model\.|vit_merger\.)": "vision_tower.vision_model.",
    }
    more_names: ClassVar[dict[str, str]] = {
        "merger.mlp.0.pre_norm": "mm.input_norm",
        "merger.mlp.0.linear_1": "mm.up",
        "merger.mlp.0.linear_2": "mm.down",
        "vision_tower.vit_merger.layer_norm1": "v.vit_merger.ln1",
        "vision_tower.vit_merger.self_attn.q_proj": "v.vit_merger.attn_q",
        "vision_tower.vit_merger.self_attn.k_proj": "v.vit_merger.attn_k",
        "vision_tower.vit_merger.self_attn.v_proj": "v.vit_merger.attn_v",
        "vision_tower.vit_merger.self_attn.out_proj": "v.vit_merger.attn_out",
        "vision_tower.vit_merger.pre_norm": "v.vit_merger.ds_ln",
        "vision_tower.vit_merger.linear_1": "v.vit_merger.ds_ffn_up",
        "vision_tower.vit_merger.linear_2": "v.vit_merger.ds_ffn_down",
    }

    def image_size(self) -> int:
        return (self.vision | {"scale_resolution": self.processor.get("scale_resolution", 448)}).need(
            "scale_resolution"
        )

    def of_vision(self) -> dict[str, Any]:
        self.config.expect("merger_times", 1)
        is_fine = self.processor.get("downsample_mode", self.config.get("downsample_mode")) == "4x"
        after = self.config.get("insert_layer_id", self.vision.get("insert_layer_id", 6))
        return super().of_vision() | {"projector.scale_factor": 2 if is_fine else 4, "wa_layer_indexes": [int(after)]}


class HunyuanVL(ProjectorConversion):
    """HunyuanOCR and Hunyuan-VL. The first row of the table of positions belongs to no patch."""

    projector_type = "hunyuanvl"
    prefixes = ("vit.",)
    eps_key, usual_eps = "rms_norm_eps", 1e-5
    changes = {"position_embedding.weight": lambda table: table[1:]}

    def image_size(self) -> int:
        return self.side("max_image_size")

    def of_vision(self) -> dict[str, Any]:
        merge = self.vision.need("spatial_merge_size")
        return super().of_vision() | self.pixel_limits() | {"spatial_merge_size": merge}


class LightOnOCR(Pixtral):
    """LightOnOCR, whose encoder and projector are those of Mistral Small 3.1, without tokens that end lines."""

    projector_type = "lightonocr"
    prefixes = ("vision_encoder.", "vision_projection.")
    renames: ClassVar[dict[str, str]] = {
        r"^vision_encoder\.": "vision_tower.",
        r"^vision_projection\.": "multi_modal_projector.",
    }

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        yield from ()


class DotsOCR(Qwen2VL):
    projector_type = "dots_ocr"
    joined = {}
    activation = "use_silu"
    prefixes: tuple[str, ...] = ("vision_tower.",)
    renames: ClassVar[dict[str, str]] = {
        r"^vision_tower\.blocks\.(\d+)\.mlp\.fc1": r"visual.blocks.\1.mlp.gate_proj",
        r"^vision_tower\.blocks\.(\d+)\.mlp\.fc2": r"visual.blocks.\1.mlp.down_proj",
        r"^vision_tower\.blocks\.(\d+)\.mlp\.fc3": r"visual.blocks.\1.mlp.up_proj",
    }
    more_names: ClassVar[dict[str, str]] = {}
    n_embd_key = "hidden_size"

    def n_ff(self) -> int:
        return self.vision.need("intermediate_size")

    def image_size(self) -> int:
        return 0  # any size is encoded

    def of_vision(self) -> dict[str, Any]:
        return (
            ProjectorConversion.of_vision(self)
            | self.limits()
            | {
                "attention.layer_norm_epsilon": float(self.vision.first("rms_norm_eps") or 1e-5),
                "projector.scale_factor": self.vision.need("spatial_merge_size"),
            }
        )

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield self.names(name), tensor
