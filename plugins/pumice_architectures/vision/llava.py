"""LLaVA 1.5 (Liu et al. 2023, arXiv:2310.03744): CLIP's last block but one, then two linear maps."""

from __future__ import annotations

import numpy as np

from pumice.plugin import GraphBuilder, HParams, ImagePiece, ModelError, Tensor
from pumice.plugin.nn import blocks
from pumice_architectures.vision.pixels import Pixels, check_ratio, patches, resize
from pumice_architectures.vision.vit import ViT, class_inputs


class Llava(ViT):
    """CLIP with a class token in front, whose row is left out of the result."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        for key in ("image_grid_pinpoints", "feature_layer"):
            if f"clip.vision.{key}" in hparams.metadata:
                raise ModelError(f"clip.vision.{key}: LLaVA 1.6 and Granite Vision are not supported yet")
        self.n_rows = self.side**2 + 1
        self.n_run = self.n_layer - 1

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        """Return the middle square of the image, whose shorter side is scaled to the encoder's size."""
        check_ratio(pixels)
        size, (height, width) = self.image_size, pixels.shape[:2]
        if width <= height:
            resized = resize(pixels, size, int(size * height / width), "bicubic")
        else:
            resized = resize(pixels, int(size * width / height), size, "bicubic")
        top, left = (resized.shape[0] - size) // 2, (resized.shape[1] - size) // 2
        rows = patches(resized[top : top + size, left : left + size], self.patch_size, self.mean, self.std)
        patch_ids = np.arange(1, self.n_rows, dtype=np.int32)  # all rows but that of the class token
        return [ImagePiece({**class_inputs(rows), "patch_ids": patch_ids})]

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.with_class(g, self.patch_embeddings(g)) + self.positions(g)
        x = self.blocks(g, blocks.layer_norm(g, x, "v.pre_ln", self.eps))
        size = g.size("n_patches", self.n_rows - 1)
        x = g.get_rows(x, g.input("patch_ids", (size,), "i32"))
        return self.perceptron(g, x, "mm.0", "mm.2")
