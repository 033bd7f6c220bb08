"""Projectors of CogVLM, Step3-VL, MiniMax-M3, GLM-5.3-Flash, Youtu-VL, Phi-4, Ling 3, Nemotron Nano VL and MiMo-V2."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from pumice.plugin.convert import ConvertError, Folder, LazyTensor, ProjectorConversion, in_layers, layer_of
from pumice_architectures.conversions.vision import Qwen3VL, channels_first, two_frames
from pumice_architectures.conversions.vision_documents import GLM4V

CLIP_MEAN, CLIP_STD = (
    [0.48145466, 0.4578275, 0.40821073],
    [0.26862954, 0.26130258, 0.27577711],
)
IMAGENET_MEAN, IMAGENET_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class CogVLM(ProjectorConversion):
    """CogVLM and CogVLM 2, whose convolution behind the encoder llama.cpp does not know."""

    projector_type = "cogvlm"
    usual_processor: ClassVar[dict[str, Any]] = {"image_mean": CLIP_MEAN, "image_std": CLIP_STD}
    activation = ""
    prefixes = ("vision.",)
    renames: ClassVar[dict[str, str]] = {r"^": "model."}
    more_names: ClassVar[dict[str, str]] = {"model.vision.conv": "mm.patch_merger"}


class Step3VL(ProjectorConversion):
    projector_type = "step3vl"
    usual_processor: ClassVar[dict[str, Any]] = {"image_mean": CLIP_MEAN, "image_std": CLIP_STD}
    activation = ""
    prefixes = ("vision_model.", "vit_large_projector.")
    aliases: ClassVar[dict[str, str]] = {
        "width": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
    }
    renames: ClassVar[dict[str, str]] = {
        r"positional_embedding$": "positional_embedding.weight",
        r"in_proj_(weight|bias)$": r"in_proj.\1",
        r"\.gamma$": ".weight",
    }
    more_names: ClassVar[dict[str, str]] = {
        "vit_large_projector": "mm.model.fc",
        "vision_model.vit_downsampler1": "mm.0",
        "vision_model.vit_downsampler2": "mm.1",
        "vision_model.conv1": "v.patch_embd",
        "vision_model.positional_embedding": "v.position_embd",
        "vision_model.ln_pre": "v.pre_ln",
        **in_layers("vision_model.transformer.resblocks.{}.", "v.blk.{}.", {
            "attn.in_proj": "attn_qkv", "attn.out_proj": "attn_out", "ln_1": "ln1", "ln_2": "ln2", "ls_1": "ls1",
            "ls_2": "ls2", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
        }),
    }  # fmt: skip
    usual_eps = 1e-5

    def n_ff(self) -> int:
        if n := self.vision.first("intermediate_size"):
            return int(n)
        return round(self.n_embd * float(self.vision.first("mlp_ratio") or 8960 / 1536))

    def of_vision(self) -> dict[str, Any]:
        self.config.expect("understand_projector_stride", 2)
        longest = int(self.processor.get("max_image_size", 3024))
        return super().of_vision() | {"projector.scale_factor": 4, "preproc_image_size": longest}

    def rename(self, name: str) -> str | None:
        own = name.removeprefix("model.")
        if name.startswith("model.") and not own.startswith("vision_model."):
            return None
        return super().rename(name)


class MiniMaxM3(ProjectorConversion):
    """MiniMax-M3, with the values of a head in the order of llama.cpp's files: those of each axis together."""

    projector_type = "minimax_m3"
    prefixes = ("vision_tower.", "multi_modal_projector.", "patch_merge_mlp.")
    more_names: ClassVar[dict[str, str]] = {
        "multi_modal_projector.linear_1": "mm.1",
        "multi_modal_projector.linear_2": "mm.2",
        "patch_merge_mlp.linear_1": "mm.merger.fc1",
        "patch_merge_mlp.linear_2": "mm.merger.fc2",
        "vision_tower.vision_model.pre_layrnorm": "v.pre_ln",
    }
    usual_eps = 1e-5

    def of_vision(self) -> dict[str, Any]:
        compression = self.vision.first("img_token_compression_config") or {}
        merge = compression.get("spatial_merge_size") or self.vision.first("spatial_merge_size") or 2
        return super().of_vision() | {"spatial_merge_size": int(merge)}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("embeddings.patch_embedding.weight"):
            yield from two_frames(name, tensor, self.folder)
        elif ".q_proj." in name or ".k_proj." in name:
            yield self.names(name), tensor[np.array(self._order(tensor.shape[0]))]
        else:
            yield self.names(name), tensor

    def _order(self, n: int) -> list[int]:
        """Return which rows of a matrix of queries or keys the rows of the file are."""
        d = n // self.n_head
        third = d // 3 // 2
        axes = [axis * third + half * 3 * third + i for axis in range(3) for half in range(2) for i in range(third)]
        head = [*axes, *range(6 * third, d)]
        return [i * d + j for i in range(self.n_head) for j in head]


class GLM5V(GLM4V):
    """GLM-5.3-Flash."""

    projector_type = "glm5v"

    def of_vision(self) -> dict[str, Any]:
        values = ProjectorConversion.of_vision(self) | {"spatial_merge_size": self.vision.need("spatial_merge_size")}
        values["swiglu_clamp"] = float(self.vision.first("swiglu_limit") or 10.0)
        square = (values["patch_size"] * values["spatial_merge_size"]) ** 2
        for key, usual in (("min", 16), ("max", 8000)):
            values[f"image_{key}_pixels"] = int(self.processor.get(f"{key}_image_tokens", usual)) * square
        return values


class YoutuVL(ProjectorConversion):
    projector_type = "youtuvl"
    prefixes = ("siglip2.", "merger.")
    more_names: ClassVar[dict[str, str]] = {
        "merger.ln_q": "mm.input_norm",
        "merger.mlp.0": "mm.0",
        "merger.mlp.2": "mm.2",
        "siglip2.vision_model.embeddings.patch_embedding": "v.patch_embd",
        "siglip2.vision_model.post_layernorm": "v.post_ln",
        **in_layers("siglip2.vision_model.encoder.layers.{}.", "v.blk.{}.", {
            "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
            "self_attn.out_proj": "attn_out", "layer_norm1": "ln1", "layer_norm2": "ln2", "mlp.fc1": "ffn_up",
            "mlp.fc2": "ffn_down",
        }),
    }  # fmt: skip

    def image_size(self) -> int:
        return self.vision.first("image_size") or 560  # any size is encoded; the value of llama.cpp's converter

    def of_vision(self) -> dict[str, Any]:
        whole = self.vision.first("fullatt_block_indexes")
        if not isinstance(whole, list) or not all(isinstance(i, int) and 0 <= i < self.n_layer for i in whole):
            raise self.vision.unsupported("fullatt_block_indexes", "blocks")
        window = self.vision.first("window_size")
        return (
            super().of_vision()
            | {"spatial_merge_size": int(self.vision.first("spatial_merge_size") or 2), "wa_layer_indexes": whole}
            | ({} if window is None else {"window_size": int(window)})
        )


class Phi4(ProjectorConversion):
    """Phi-4 reasoning vision. The last block, whose output is not used, is left out."""

    projector_type = "phi4"
    prefixes = ("vision_tower.", "mm_projector.")
    renames: ClassVar[dict[str, str]] = {r"^vision_tower\.vision_tower\.": "vision_tower."}
    unused = (".vision_model.head.", ".post_layernorm.")
    more_names: ClassVar[dict[str, str]] = {"mm_projector.0": "mm.0", "mm_projector.2": "mm.2"}

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.n_layer -= 1

    def _of_processor(self, key: str) -> int:
        value = self.processor.get(key, self.config.first(key))
        return (self.vision | {key: value}).need(key)

    def side(self, key: str) -> int:
        return self._of_processor(key) if key == "patch_size" else super().side(key)

    def image_size(self) -> int:
        name = next((name for name in self.checkpoint() if name.endswith("position_embedding.weight")), None)
        if name is None:
            raise ConvertError(f"{self.folder.path}: tensor 'position_embedding.weight' is missing")
        return math.isqrt(self.checkpoint()[name].shape[0]) * self.side("patch_size")

    def of_vision(self) -> dict[str, Any]:
        square = self.side("patch_size") ** 2
        limits = {f"image_{key}_pixels": self._of_processor(f"{key}_num_patches") * square for key in ("min", "max")}
        return super().of_vision() | limits

    def rename(self, name: str) -> str | None:
        is_behind = ".layers." in name and layer_of(name) >= self.n_layer
        return None if is_behind else super().rename(name)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("patch_embedding.weight"):
            tensor = channels_first(tensor, self.n_embd, self.side("patch_size"))
        yield self.names(name), tensor


class Ling3VL(Qwen3VL):
    projector_type = "ling3vl"
    prefixes = ("visual.", "linear_proj.")
    more_names: ClassVar[dict[str, str]] = {
        "visual.merger.norm": "mm.input_norm",
        "linear_proj.0": "mm.0",
        "linear_proj.2": "mm.2",
    }

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        if self.vision.first("disable_merger_proj") is not True or self.deep_layers:
            raise self.vision.unsupported("disable_merger_proj", "True, without deepstack layers")

    def of_vision(self) -> dict[str, Any]:
        values = super().of_vision()
        return {key: value for key, value in values.items() if key != "is_deepstack_layers"}


class NemotronV2VL(ProjectorConversion):
    """Nemotron Nano VL v2, whose configuration leaves out the sizes of its encoder (RADIO 2.5, ViT-H)."""

    projector_type = "nemotron_v2_vl"
    usual_processor: ClassVar[dict[str, Any]] = {"image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD}
    prefixes: tuple[str, ...] = ("vision_model.radio_model.model.", "mlp1.")
    float32 = frozenset({"v.position_embd", "v.class_embd"})
    unused: tuple[str, ...] = ("input_conditioner", ".video_embedder")
    usual: ClassVar[dict[str, int]] = {
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
    }
    renames: ClassVar[dict[str, str]] = {r"pos_embed$": "pos_embed.weight", r"cls_token\.token$": "cls_token"}
    more_names: ClassVar[dict[str, str]] = {
        "mlp1.0": "mm.model.mlp.0",
        "mlp1.1": "mm.model.mlp.1",
        "mlp1.3": "mm.model.mlp.3",
        "vision_model.radio_model.model.patch_generator.embedder": "v.patch_embd",
        "vision_model.radio_model.model.patch_generator.pos_embed": "v.position_embd",
        "vision_model.radio_model.model.patch_generator.cls_token": "v.class_embd",
        **in_layers("vision_model.radio_model.model.blocks.{}.", "v.blk.{}.", {
            "attn.qkv": "attn_qkv", "attn.proj": "attn_out", "norm1": "ln1", "norm2": "ln2", "mlp.fc1": "ffn_up",
            "mlp.fc2": "ffn_down",
        }),
    }  # fmt: skip

    def image_size(self) -> int:
        return int(self.config.get("force_image_size", 512))

    def side(self, key: str) -> int:
        value = self.vision.first(key) or self.config.first(key)
        return (self.vision | {key: value}).need(key)

    def of_vision(self) -> dict[str, Any]:
        merge = int(1 / float(self.config.get("downsample_ratio", 0.5)))
        tiles = self.processor.get("max_num_tiles")
        more = {} if tiles in (None, 12) else {"preproc_max_tiles": int(tiles)}
        return super().of_vision() | {"projector.scale_factor": merge} | more

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        side = self.image_size() // self.side("patch_size")
        if name.endswith("pos_embed.weight"):
            n = math.isqrt(tensor.shape[1])
            tensor = tensor.map(lambda table: _resized(table, n, side), (1, side**2, tensor.shape[2]))
        elif ".embedder." in name:
            tensor = tensor.reshape(self.n_embd, 3, *[self.side("patch_size")] * 2)
        yield self.names(name), tensor


def _resized(table: np.ndarray, n_from: int, n_to: int) -> np.ndarray:
    """Return a square table ``[1, n_from**2, n]`` in another size: bilinear, with the corners in the same places."""
    if n_from == n_to:
        return table
    exact = np.linspace(0, n_from - 1, n_to, dtype=np.float32)
    low = np.minimum(exact.astype(np.int32), n_from - 1)
    high, t = np.minimum(low + 1, n_from - 1), exact - low
    cells = table.reshape(n_from, n_from, -1)
    rows = cells[low] * (1 - t)[:, None, None] + cells[high] * t[:, None, None]
    cells = rows[:, low] * (1 - t)[None, :, None] + rows[:, high] * t[None, :, None]
    return cells.reshape(1, n_to**2, -1)


class MiMoVL(Qwen3VL):
    """The vision part of MiMo-V2.5."""

    projector_type = "mimovl"
    type_key = "vision.projector_type"
    activation = "use_silu"
    more_names: ClassVar[dict[str, str]] = {
        "visual.merger.ln_q": "v.post_ln",
        "visual.merger.mlp.0": "mm.0",
        "visual.merger.mlp.2": "mm.2",
        "visual.blocks.{}.attn.sinks": "v.blk.{}.attn_sinks",
    }

    def image_size(self) -> int:
        return int(self.vision.first("image_size") or 560)  # any size is encoded; the value of llama.cpp's converter

    def of_vision(self) -> dict[str, Any]:
        modes = self.vision.first("vit_window_attn_types")
        if not isinstance(modes, list) or len(modes) != self.n_layer:
            raise self.vision.unsupported("vit_window_attn_types", f"one of each of {self.n_layer} blocks")
        values = ProjectorConversion.of_vision(self) | self.limits()
        return values | {
            "attention.layer_norm_epsilon": float(self.vision.first("rms_norm_eps") or 1e-6),
            "attention.head_count_kv": int(self.vision.first("num_key_value_heads") or 8),
            "attention.head_dim": int(self.vision.first("qk_channels") or 64),
            "spatial_merge_size": self.vision.need("spatial_merge_size"),
            "window_size": self.vision.need("visual_token_window_size"),
            "wa_pattern_mode": [int(mode) for mode in modes],
        }
