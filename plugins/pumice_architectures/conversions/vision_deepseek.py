"""The projector of DeepSeek V4 Flash Vision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pumice.plugin.convert import ConvertError, Folder, HFConfig, LazyTensor, ProjectorConversion

#: Values that files have no keys for; readers assume them.
ASSUMED = {"vision_max_n_token": 384, "vision_max_wh_ratio": 8, "vision_rope_theta": 10000.0}
BLOCK = {
    "norm1": "ln1", "norm2": "ln2", "attn.wqkv": "attn_qkv", "attn.wo": "attn_out", "mlp.w1_gate": "ffn_gate",
    "mlp.w1_up": "ffn_up", "mlp.w2": "ffn_down",
}  # fmt: skip


class DeepSeek4V(ProjectorConversion):
    """DeepSeek V4 Flash Vision, whose encoder's settings are among those of the language model."""

    projector_type = "deepseek4v"
    activation = "use_silu"
    prefixes = ("vision.", "aligner.", "image_")
    joined = {".mlp.w1.": (".mlp.w1_gate.", ".mlp.w1_up.")}
    usual_processor: ClassVar[dict[str, Any]] = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    more_names: ClassVar[dict[str, str]] = {
        "vision.patch_embed.proj": "v.patch_embd",
        "vision.norm": "v.post_ln",
        "aligner.w1": "mm.1",
        "aligner.w2": "mm.2",
        "image_newline": "v.image_newline",
        **{f"image_{name}": f"v.token_embd.img_{name}" for name in ("start", "end", "pad")},
        **{f"vision.blocks.{{}}.{theirs}": f"v.blk.{{}}.{ours}" for theirs, ours in BLOCK.items()},
    }

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.config = config = folder.config
        if not config.first("vision_n_layers"):
            raise ConvertError(f"{config.path}: 'vision_n_layers' is missing; the model takes no images")
        for key, value in ASSUMED.items():
            config.expect(key, value)
        names = {"n_layers": "num_hidden_layers", "dim": "hidden_size", "n_heads": "num_attention_heads"}
        names |= {"inter_dim": "intermediate_size", "patch_size": "patch_size"}
        self.vision = HFConfig(config.path, {ours: config.first(f"vision_{theirs}") for theirs, ours in names.items()})
        self.n_layer = self.count_layers()

    def image_size(self) -> int:
        return self.side("patch_size") * self.config.need("vision_downsample_ratio") * 16  # images are of any size

    def of_vision(self) -> dict[str, Any]:
        return super().of_vision() | {
            "projector.scale_factor": self.config.need("vision_downsample_ratio"),
            "image_min_pixels": self.config.need("vision_min_pixels"),
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name == "vision.patch_embed.proj.weight":
            tensor = tensor.reshape(tensor.shape[0], 3, *[self.side("patch_size")] * 2)
        yield self.names(name), tensor

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        marks = {f"image_{name}" for name in ("newline", "start", "end", "pad")}
        if missing := marks - {self.rename(name) for name in self.checkpoint()}:
            raise ConvertError(f"{self.folder.path}: tensor {min(missing)!r} is missing")
        yield from super().more_tensors()
