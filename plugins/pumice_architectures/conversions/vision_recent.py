"""Projectors of Gemma 4, Kimi and Llama 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pumice.plugin.convert import (
    Folder,
    LazyTensor,
    ProjectorConversion,
    concatenate,
)
from pumice_architectures.conversions.vision import channels_first

LIMITS = (".input_min", ".input_max", ".output_min", ".output_max")


class Gemma4(ProjectorConversion):
    """Gemma 4, whose maps may have limits of their values."""

    projector_type = "gemma4v"
    type_key = "vision.projector_type"
    activation = ""
    unnamed_activation = "gelu_pytorch_tanh"
    rope_base = 100.0
    eps_key = "rms_norm_eps"
    prefixes: tuple[str, ...] = ("vision_tower.", "embed_vision.")
    renames: ClassVar[dict[str, str]] = {
        r"^vision_tower\.encoder\.": "vision_model.model.",
        r"^(vision_tower|embed_vision)\.": r"model.\1.",
        r"\.linear\.weight$": ".weight",
        r"(position_embedding_table)$": r"\1.weight",
    }
    usual_merge, usual_rows = 3, 280

    def image_size(self) -> int:
        return 224  # any size is encoded; the value of llama.cpp's converter

    def of_vision(self) -> dict[str, Any]:
        merge = self.vision.first("pooling_kernel_size") or self.usual_merge
        rows = self.processor.get("max_soft_tokens") or self.usual_rows
        values = super().of_vision() | ({} if merge == self.usual_merge else {"projector.scale_factor": int(merge)})
        side = values["patch_size"] * int(merge)
        return values | ({} if rows == self.usual_rows else {"image_max_pixels": int(rows) * side**2})

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("patch_embedder.input_proj.weight"):
            tensor = channels_first(tensor, tensor.shape[0], self.side("patch_size"))
        base, dot, limit = name.rpartition(".")
        if f"{dot}{limit}" in LIMITS:
            own = self.names(f"{base.removesuffix('.linear')}.weight").removesuffix("weight")
            yield own + limit, tensor.reshape(1)
        else:
            yield self.names(name), tensor


class Gemma4Unified(Gemma4):
    """Gemma 4 without transformers for images and sound."""

    projector_type = "gemma4uv"
    prefixes = ("vision_embedder.", "embed_vision.", "embed_audio.")
    more_names: ClassVar[dict[str, str]] = {
        "embed_audio.embedding_projection": "mm.a.input_projection",
        "vision_embedder.patch_dense": "v.patch_embd",
        "vision_embedder.patch_ln1": "v.patch_norm.1",
        "vision_embedder.patch_ln2": "v.patch_norm.2",
        "vision_embedder.pos_norm": "v.patch_norm.3",
        "vision_embedder.pos_embedding": "v.position_embd",
    }
    renames: ClassVar[dict[str, str]] = {
        r"^vision_embedder\.multimodal_embedder\.": "model.embed_vision.",
        r"^embed_vision\.": "model.embed_vision.",
        r"(pos_embedding)$": r"\1.weight",
    }
    n_embd_key = "mm_embed_dim"

    def count_layers(self) -> int:
        return 0

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | self._of_audio()

    def _of_audio(self) -> dict[str, Any]:
        """Return the keys of the part for sound; none if the model has no such part."""
        if not isinstance(self.config.get("audio_config"), dict):
            return {}
        audio = self.config.section("audio_config")
        keys = {
            "projector_type": "gemma4ua",
            "projection_dim": self.config.need("hidden_size"),
            "embedding_length": audio.need("audio_embed_dim"),
            "feed_forward_length": 0,
            "block_count": 0,
            "attention.head_count": 0,
            "attention.layer_norm_epsilon": float(audio.first("layer_norm_eps") or 1e-6),
            "num_mel_bins": 128,  # which readers require
        }
        return {"has_audio_encoder": True} | {f"audio.{key}": value for key, value in keys.items()}

    @property
    def n_head(self) -> int:
        return 0

    def n_ff(self) -> int:
        return 0

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        side = self.side("patch_size") * int(self.vision.first("pooling_kernel_size") or self.usual_merge)
        if name.endswith("pos_embedding.weight"):
            tensor = tensor.transpose(1, 0, 2)
        elif "patch_dense.weight" in name:
            tensor = channels_first(tensor, tensor.shape[0], side).reshape(*tensor.shape)
        elif "patch_ln1" in name:
            tensor = channels_first(tensor, 1, side).reshape(*tensor.shape)
        yield self.names(name), tensor


class KimiVL(ProjectorConversion):
    """Kimi-VL, whose encoder is MoonViT."""

    projector_type = "kimivl"
    joined: ClassVar[dict[str, tuple[str, ...]]] = {".wqkv.": (".wq.", ".wk.", ".wv.")}
    flat_positions = True
    aliases: ClassVar[dict[str, str]] = {
        "vt_hidden_size": "hidden_size",
        "vt_intermediate_size": "intermediate_size",
        "vt_num_attention_heads": "num_attention_heads",
        "vt_num_hidden_layers": "num_hidden_layers",
        "init_pos_emb_height": "pos_emb_height",
        "init_pos_emb_width": "pos_emb_width",
        "init_pos_emb_time": "pos_emb_time",
        "projector_ln_eps": "layer_norm_eps",
    }
    usual_eps = 1e-5

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        merge = self.vision.first("merge_kernel_size") or [2, 2]
        if not isinstance(merge, list) or len(merge) != 2 or merge[0] != merge[1] or not isinstance(merge[0], int):
            raise self.vision.unsupported("merge_kernel_size", "a square")
        self.merge = merge[0]

    def image_size(self) -> int:
        return int(self.vision.first("pos_emb_height") or 64) * self.side("patch_size")

    def of_vision(self) -> dict[str, Any]:
        return super().of_vision() | {"projector.scale_factor": self.merge} | self.limits()

    def limits(self) -> dict[str, int]:
        """Return the most pixels of an image, unless they are the usual ones."""
        n = self.processor.get("in_token_limit", 4096)
        return {} if n == 4096 else {"image_max_pixels": int(n) * self.side("patch_size") ** 2}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith("pos_emb.weight") and self.flat_positions:
            tensor = tensor.reshape(-1, tensor.shape[-1])
        yield self.names(name), tensor


class KimiK25(KimiVL):
    """Kimi K2.5, with the pairs of queries and keys in the order of llama.cpp's files; positions in time are left out.

    Those are of videos.
    """

    projector_type = "kimik25"
    joined = {}
    flat_positions = False
    prefixes = ("vision_tower.", "mm_projector.")
    renames: ClassVar[dict[str, str]] = {
        r"^mm_projector\.proj\.0\.": "mm_projector.proj.linear_1.",
        r"^mm_projector\.proj\.2\.": "mm_projector.proj.linear_2.",
    }

    def limits(self) -> dict[str, int]:
        patches = self.processor.get("in_patch_limit") or self.processor.get("max_patches") or 16384
        side = self.side("patch_size")
        return {"image_min_pixels": 8 * side**2, "image_max_pixels": int(patches) * side**2}

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if ".wqkv." not in name:
            yield from super().convert(name, tensor)
            return
        n, rest = tensor.shape[0] // 3, tensor.shape[1:]
        by_pair = tensor.reshape(3, self.n_head, n // self.n_head // 4, 2, 2, *rest)
        # of the pairs of a head the even ones turn by the column, the odd ones by the row
        sorted_pairs = by_pair.transpose(0, 1, 3, 2, 4, *range(5, 5 + len(rest))).reshape(3 * n, *rest)
        yield self.names(name), concatenate([sorted_pairs[: 2 * n], tensor[2 * n :]])


class Llama4(ProjectorConversion):
    projector_type = "llama4"
    prefixes = ("vision_model.", "multi_modal_projector.")
    renames: ClassVar[dict[str, str]] = {r"(positional_embedding_vlm)$": r"\1.weight"}
    more_names: ClassVar[dict[str, str]] = {
        "multi_modal_projector.linear_1": "mm.model.fc",
        "vision_model.model.layers.{}.post_attention_layernorm": "v.blk.{}.ln2",
    }
    eps_key, usual_eps = "norm_eps", 1e-5

    def of_vision(self) -> dict[str, Any]:
        values = super().of_vision()
        values["projector.scale_factor"] = round(1 / float(self.vision.first("pixel_shuffle_ratio") or 0.5))
        tiles = self.processor.get("max_patches") or 16
        return values | ({} if tiles == 16 else {"preproc_max_tiles": int(tiles)})
