"""The projector of Muse Glimmer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pumice.plugin.convert import LazyTensor, ProjectorConversion, in_layers


class MuseGlimmer(ProjectorConversion):
    """Both frames of a patch are one in an image, and pairs of queries and keys are neighbours."""

    projector_type = "muse-glimmer"
    activation = ""
    unnamed_activation = "gelu"
    prefixes = ("vision_tower.", "vision_adapter.", "vision_projection.")
    more_names: ClassVar[dict[str, str]] = {
        "vision_adapter.fc1": "mm.0",
        "vision_adapter.fc2": "mm.1",
        "vision_projection": "mm.2",
        "vision_tower.patch_embedder.patch_embedding": "v.patch_embd",
        "vision_tower.patch_embedder.position_embedding_table": "v.position_embd",
        "vision_tower.ln_pre": "v.pre_ln",
        "vision_tower.ln_post": "v.post_ln",
        **in_layers("vision_tower.layers.{}.", "v.blk.{}.", {
            "attn.q_proj": "attn_q", "attn.k_proj": "attn_k", "attn.v_proj": "attn_v", "attn.proj": "attn_out",
            "norm1": "ln1", "norm2": "ln2", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
        }),
    }  # fmt: skip
    usual_eps = 1e-5

    def check_encoder(self) -> None:
        super().check_encoder()
        self.vision.expect("layer_norm_eps", self.usual_eps)  # that of the blocks, which have no key

    @property
    def merge(self) -> int:
        return int(self.vision.first("merge_size") or 2)

    def image_size(self) -> int:
        return int(self.vision.first("pos_emb_height") or 32) * self.side("patch_size") * self.merge

    def of_vision(self) -> dict[str, Any]:
        values = super().of_vision() | {"spatial_merge_size": self.merge}
        rows = self.processor.get("max_image_tokens")
        most = {} if rows is None else {"image_max_pixels": int(rows) * (self.side("patch_size") * self.merge) ** 2}
        return values | most

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        name = self.names(name)
        if name == "v.patch_embd.weight":
            side = self.side("patch_size")
            frames = tensor.reshape(tensor.shape[0], -1, 3, side, side)
            tensor = frames.map(lambda w: w.sum(1), (tensor.shape[0], 3, side, side))
        elif ".attn_q." in name or ".attn_k." in name:
            tensor = tensor.interleave_rope(self.n_head)
        yield name, tensor
