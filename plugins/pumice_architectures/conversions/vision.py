"""Vision encoders and projectors of vision models, as projector files (mmproj)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from pumice.plugin.convert import (
    MOST_LAYERS,
    ConvertError,
    Folder,
    GGMLType,
    HFConfig,
    LazyTensor,
    ProjectorConversion,
    layer_of,
)

SIGLIP = {r"^vision_tower\.(?!vision_model\.)": "vision_tower.vision_model."}


def channels_first(tensor: LazyTensor, n: int, side: int) -> LazyTensor:
    """Return kernels ``[n, 3, side, side]`` of ``[n, side * side * 3]``."""
    return tensor.reshape(n, side, side, 3).transpose(0, 3, 1, 2)


def two_frames(name: str, tensor: LazyTensor, folder: Folder) -> Iterator[tuple[str, LazyTensor]]:
    """Yield both kernels of patches of two frames."""
    if len(tensor.shape) != 5 or tensor.shape[2] != 2:
        raise ConvertError(f"{folder.path}: tensor {name!r} must have two frames")
    yield "v.patch_embd.weight", tensor[:, :, 0]
    yield "v.patch_embd.weight.1", tensor[:, :, 1]


def gelu_or_silu(config: HFConfig, usual: str) -> str:
    """Return the key of the activation in ``config``, which may have either; ``usual``: the one that it may omit."""
    activation = config.first("hidden_act") or usual
    if activation not in ("gelu", "silu"):
        raise config.unsupported("hidden_act", "'silu' or 'gelu'")
    return f"use_{activation}"


class Gemma3(ProjectorConversion):
    projector_type = "gemma3"
    renames: ClassVar[dict[str, str]] = {**SIGLIP, "_weight$": ".weight"}
    types = {r"^mm\.input_projection": GGMLType.F16}
    changes = {"soft_emb_norm.weight": lambda norm: norm + 1}
    unused = (".head.",)

    def of_vision(self) -> dict[str, Any]:
        values = super().of_vision()
        n_rows = math.isqrt(int(self.config.get("mm_tokens_per_image", 256)))
        merge = values["image_size"] // values["patch_size"] // max(n_rows, 1)
        return values | ({"projector.scale_factor": merge} if merge != 4 else {})


class Idefics3(ProjectorConversion):
    """Idefics 3 and SmolVLM."""

    projector_type = "idefics3"
    prefixes = ("vision_model.", "connector.")
    renames: ClassVar[dict[str, str]] = {
        r"^vision_model\.": "vision_tower.vision_model.",
        r"^connector\.": "model.connector.",
    }

    def of_vision(self) -> dict[str, Any]:
        values = super().of_vision()
        size = self.processor.get("size")
        longest = size.get("longest_edge") if isinstance(size, dict) else None
        return values | {
            "projector.scale_factor": int(self.config.get("scale_factor", 2)),
            "preproc_image_size": int(longest or values["image_size"]),
        }


class LFM2VL(ProjectorConversion):
    """LFM2-VL. Blocks behind the one whose output is used are left out."""

    projector_type = "lfm2"
    renames = SIGLIP
    unused = (".head.",)
    more_names: ClassVar[dict[str, str]] = {
        "multi_modal_projector.layer_norm": "mm.input_norm",
        "multi_modal_projector.linear_1": "mm.1",
        "multi_modal_projector.linear_2": "mm.2",
    }

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        layer = self.config.first("vision_feature_layer")
        if layer is not None and (not isinstance(layer, int) or not -self.n_layer <= layer < 0):
            raise self.config.unsupported("vision_feature_layer", "-1 for the last one")
        self.n_layer += 1 + (-1 if layer is None else layer)

    def of_vision(self) -> dict[str, Any]:
        merge = int(self.config.get("downsample_factor", 2))
        values = super().of_vision() | {"projector.scale_factor": merge}
        square = (values["patch_size"] * merge) ** 2
        defaults = {"min_image_tokens": 64, "max_image_tokens": 256, "tile_size": 512, "min_tiles": 2, "max_tiles": 10}
        keys = ("image_min_pixels", "image_max_pixels", "preproc_image_size", "preproc_min_tiles", "preproc_max_tiles")
        for key, (name, usual) in zip(keys, defaults.items(), strict=True):
            if (n := int(self.processor.get(name, usual))) != usual:
                values[key] = n * (square if key.endswith("_pixels") else 1)
        return values

    def image_size(self) -> int:
        return math.isqrt(self.vision.need("num_patches")) * self.side("patch_size")

    def rename(self, name: str) -> str | None:
        return None if layer_of(name) >= self.n_layer else super().rename(name)

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("patch_embedding.weight"):
            tensor = channels_first(tensor, self.n_embd, self.side("patch_size"))
        yield self.names(name), tensor


class Llava(ProjectorConversion):
    """LLaVA 1.5, whose encoder is CLIP, or Pixtral."""

    projector_type = "mlp"
    activation = ""
    unnamed_activation = "quick_gelu"
    renames = SIGLIP
    more_names: ClassVar[dict[str, str]] = {
        "multi_modal_projector.linear_1": "mm.0",
        "multi_modal_projector.linear_2": "mm.2",
    }
    usual_eps = 1e-5
    unused: tuple[str, ...] = ("position_ids",)

    @classmethod
    def made_for(cls, folder: Folder) -> ProjectorConversion:
        if cls is not Llava:
            return cls(folder)
        vision = folder.config.section("vision_config")
        kind = vision.get("model_type")
        if kind not in ("pixtral", "clip_vision_model"):
            raise vision.unsupported("model_type", "'pixtral' or 'clip_vision_model'")
        return Pixtral(folder) if kind == "pixtral" else cls(folder)


class LlavaNext(Llava):
    """LLaVA 1.6 and Granite Vision, whose encoder is CLIP or SigLIP."""

    prefixes = (*Llava.prefixes, "image_newline")
    unused = (*Llava.unused, ".head.")
    more_names: ClassVar[dict[str, str]] = {**Llava.more_names, "image_newline": "v.image_newline"}

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        if (kind := self.vision.first("model_type")) not in ("clip_vision_model", "siglip_vision_model"):
            raise self.vision.unsupported("model_type", "'clip_vision_model' or 'siglip_vision_model'")
        self.activation = "use_gelu" if kind == "siglip_vision_model" else ""
        if self.config.get("vision_feature_select_strategy", "default") != ("full" if self.activation else "default"):
            raise self.config.unsupported("vision_feature_select_strategy", f"that of {kind!r}")

    def of_vision(self) -> dict[str, Any]:
        layers = self.config.get("vision_feature_layer", -2)
        layers = [layers] if isinstance(layers, int) else layers
        if not isinstance(layers, list) or not all(isinstance(i, int) and abs(i) <= self.n_layer for i in layers):
            raise self.config.unsupported("vision_feature_layer", "blocks")
        sizes = self.config.get("image_grid_pinpoints", [])
        return super().of_vision() | {
            "feature_layer": [i if i >= 0 else self.n_layer + 1 + i for i in layers],
            "image_grid_pinpoints": [side for size in sizes for side in size],
            "mm_patch_merge_type": "spatial_unpad",
        }


class JanusPro(ProjectorConversion):
    projector_type = "janus_pro"
    prefixes = ("vision_model.", "aligner.")
    renames: ClassVar[dict[str, str]] = {
        r"^vision_model\.": "vision_tower.vision_model.",
        r"\.projection_layer\.": ".out_proj.",
    }
    more_names: ClassVar[dict[str, str]] = {"aligner.fc1": "mm.0", "aligner.hidden_layers.0": "mm.1"}

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.vision.expect("depth", 2)  # linear maps

    def count_layers(self) -> int:
        return self.vision.need("num_hidden_layers", most=MOST_LAYERS)  # "depth" is another number

    def n_ff(self) -> int:
        return int(self.n_embd * float(self.vision.first("mlp_ratio") or 4.0))


class Pixtral(ProjectorConversion):
    """Pixtral, Mistral Small 3.1 and later. Heads are reordered for RoPE of neighbouring values."""

    projector_type = "pixtral"
    more_names: ClassVar[dict[str, str]] = {
        "multi_modal_projector.linear_1": "mm.1",
        "multi_modal_projector.linear_2": "mm.2",
        "multi_modal_projector.norm": "mm.input_norm",
    }
    break_token = "[IMG_BREAK]"

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.activation = gelu_or_silu(self.vision, "gelu")

    def epsilon(self) -> float:
        return 1e-5

    def of_vision(self) -> dict[str, Any]:
        merge = self.config.first("spatial_merge_size")
        return super().of_vision() | ({} if merge is None else {"spatial_merge_size": int(merge)})

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if ".q_proj." in name or ".k_proj." in name:
            tensor = tensor.interleave_rope(self.n_head)
        yield self.names(name), tensor

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        """Yield the embedding of the token that ends a line, which other programs read here."""
        table = next((t for name, t in self.checkpoint().items() if name.endswith("embed_tokens.weight")), None)
        token = self.added_ids.get(self.break_token)
        if table is not None and token is not None and token < table.shape[0]:
            yield "v.token_embd.img_break", table[token]


class MistralLarge4(Pixtral):
    """Mistral Large 4: Mistral Small 3.1's tower with its authors' names and heads for RoPE of neighbouring values."""

    prefixes = ("vision_encoder.", "vision_language_adapter.", "patch_merger.", "pre_mm_projector_norm.")
    renames: ClassVar[dict[str, str]] = {
        r"^vision_encoder\.": "vision_tower.",
        r"^vision_language_adapter\.w_in\.": "multi_modal_projector.linear_1.",
        r"^vision_language_adapter\.w_out\.": "multi_modal_projector.linear_2.",
        r"^patch_merger\.": "multi_modal_projector.patch_merger.",
        r"^pre_mm_projector_norm\.": "multi_modal_projector.norm.",
        r"\.attention\.w([qkvo])\.": r".attention.\1_proj.",
        r"\.feed_forward\.w1\.": ".feed_forward.gate_proj.",
        r"\.feed_forward\.w2\.": ".feed_forward.down_proj.",
        r"\.feed_forward\.w3\.": ".feed_forward.up_proj.",
    }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        yield self.names(name), tensor


class Qwen2VL(ProjectorConversion):
    """Qwen 2 VL and 2.5 VL."""

    projector_type = "qwen2vl_merger"
    activation = ""
    unnamed_activation = "quick_gelu"
    prefixes: tuple[str, ...] = ("visual.",)
    more_names: ClassVar[dict[str, str]] = {"visual.merger.mlp.0": "mm.0", "visual.merger.mlp.2": "mm.2"}
    joined: ClassVar[dict[str, tuple[str, ...]]] = {".qkv.": (".q.", ".k.", ".v.")}
    n_embd_key = "embed_dim"

    @classmethod
    def made_for(cls, folder: Folder) -> ProjectorConversion:
        is_25 = cls is Qwen2VL and "Qwen2_5" in folder.config.outer_class
        return Qwen25VL(folder) if is_25 else cls(folder)

    def of_vision(self) -> dict[str, Any]:
        values = super().of_vision() | self.limits()
        return values | {"attention.layer_norm_epsilon": float(self.config.get("rms_norm_eps", 1e-6))}

    def limits(self) -> dict[str, int]:
        """Return the fewest and most pixels of an image and of a video, as far as the checkpoint has them."""
        video = self.folder.optional_json("video_preprocessor_config.json")
        return self.pixel_limits() | self.pixel_limits("video", video)

    def n_ff(self) -> int:
        return self.vision.need("hidden_size")  # as llama.cpp's converter; the width is that of the tensors

    def image_size(self) -> int:
        return 560  # any size is encoded; the value of llama.cpp's converter

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name == "visual.patch_embed.proj.weight":
            yield from two_frames(name, tensor, self.folder)
        else:
            yield self.names(name), tensor


class Qwen25VL(Qwen2VL):
    projector_type = "qwen2.5vl_merger"
    activation = "use_silu"
    n_embd_key = "hidden_size"

    def n_ff(self) -> int:
        return self.vision.need("intermediate_size")

    def of_vision(self) -> dict[str, Any]:
        full = self.vision.first("fullatt_block_indexes")
        pattern = full[0] + 1 if isinstance(full, list) and full and isinstance(full[0], int) else 0
        if not pattern or full != list(range(pattern - 1, self.n_layer, pattern)):
            raise self.vision.unsupported("fullatt_block_indexes", "every n-th block")
        window = self.vision.first("window_size") or 112
        rate = self.times_a_second()
        return (
            super().of_vision()
            | {"n_wa_pattern": pattern}
            | ({} if window == 112 else {"window_size": window})
            | ({} if rate == 2 else {"tokens_per_second": rate})
        )

    def times_a_second(self) -> int:
        """Return the places in time of a second of video."""
        return int(self.vision.first("tokens_per_second") or 4)


class Exaone45(Qwen25VL):
    """EXAONE 4.5, with joined queries, keys and values."""

    projector_type = "exaone4_5"
    joined = {}

    def of_vision(self) -> dict[str, Any]:
        return super().of_vision() | {
            "attention.head_count_kv": self.vision.need("num_key_value_heads"),
            "attention.layer_norm_epsilon": float(self.vision.first("rms_norm_eps") or self.epsilon()),
            "window_size": int(self.vision.first("window_size") or 112),
        }


class Qwen3VL(Qwen25VL):
    projector_type = "qwen3vl_merger"
    activation = "use_gelu"
    joined = {}
    more_names: ClassVar[dict[str, str]] = {
        "visual.merger.norm": "v.post_ln",
        "visual.merger.linear_fc1": "mm.0",
        "visual.merger.linear_fc2": "mm.2",
    }

    @property
    def deep_layers(self) -> list[int]:
        layers = self.vision.first("deepstack_visual_indexes") or []
        if not all(isinstance(i, int) and 0 <= i < self.n_layer for i in layers):
            raise self.vision.unsupported("deepstack_visual_indexes", "layers")
        return list(layers)

    def image_size(self) -> int:
        return math.isqrt(self.vision.need("num_position_embeddings")) * self.side("patch_size")

    def of_vision(self) -> dict[str, Any]:
        values = Qwen2VL.of_vision(self) | {"spatial_merge_size": self.vision.need("spatial_merge_size")}
        deep = self.deep_layers
        return values | ({"is_deepstack_layers": [i in deep for i in range(self.n_layer)]} if self.n_layer else {})

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.startswith("visual.deepstack_merger_list."):
            number, part = name.removeprefix("visual.deepstack_merger_list.").split(".", 1)
            yield f"v.deepstack.{self.deep_layers[int(number)]}.{part.replace('linear_', '')}", tensor
        else:
            yield from super().convert(name, tensor)


class InternVL(ProjectorConversion):
    """InternVL 2 to 3.5, as its authors or as transformers store it."""

    projector_type = "internvl"
    prefixes = ("vision_tower.", "vision_model.", "multi_modal_projector.", "mlp1.")
    renames: ClassVar[dict[str, str]] = {
        r"^vision_tower\.": "model.vision_tower.",
        r"^vision_model\.": "vision_tower.vision_model.",
        r"(\.ls[12]|\.lambda_[12]|\.position_embeddings?)$": r"\1.weight",
    }
    more_names: ClassVar[dict[str, str]] = {
        "multi_modal_projector.layer_norm": "mm.model.mlp.0",
        "multi_modal_projector.linear_1": "mm.model.mlp.1",
        "multi_modal_projector.linear_2": "mm.model.mlp.3",
        "mlp1.0": "mm.model.mlp.0",
        "mlp1.1": "mm.model.mlp.1",
        "mlp1.3": "mm.model.mlp.3",
    }
    joined = {".attn.qkv.": tuple(f".self_attn.{part}_proj." for part in "qkv")}

    def of_vision(self) -> dict[str, Any]:
        values = super().of_vision()
        values["projector.scale_factor"] = round(1 / float(self.config.get("downsample_ratio", 0.5)))
        for ours in ("min", "max"):
            if n := self.config.first(f"{ours}_dynamic_patch") or self.processor.get(f"{ours}_patches"):
                values[f"preproc_{ours}_tiles"] = int(n)
        return values
