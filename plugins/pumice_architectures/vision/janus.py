"""Janus-Pro (DeepSeek 2025, arXiv:2501.17811): SigLIP over the whole image on a grey square."""

from __future__ import annotations

import numpy as np

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.unstable import ImagePiece
from pumice_architectures.vision.pixels import Pixels, check_ratio, patches, resize
from pumice_architectures.vision.vit import ViT

LEAST_SIDE = 14  # pixels of a resized image
AROUND = ("<begin_of_image>", "<end_of_image>")


class JanusPro(ViT):
    known_activation = "gelu_erf"

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        size = self.image_size
        height, width = (max(round(side * (size / max(pixels.shape[:2]))), LEAST_SIDE) for side in pixels.shape[:2])
        square = np.empty((max(height, width),) * 2 + (3,), np.uint8)
        square[:] = [int(255 * mean) for mean in self.mean]
        top, left = (len(square) - height) // 2, (len(square) - width) // 2
        square[top : top + height, left : left + width] = resize(pixels, width, height, "bicubic")
        return [AROUND[0], ImagePiece({"patches": patches(square, self.patch_size, self.mean, self.std)}), AROUND[1]]

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.patch_embeddings(g) + self.positions(g))
        return self.perceptron(g, self.norm(g, x, "v.post_ln"), "mm.0", "mm.1")
