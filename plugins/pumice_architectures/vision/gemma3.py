"""Gemma 3 (2025, arXiv:2503.19786): SigLIP, then the mean of squares of patches."""

from __future__ import annotations

import functools

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import ImagePiece
from pumice_architectures.vision.pixels import Pixels, check_ratio, patches, resize
from pumice_architectures.vision.vit import ViT, corners, gathered


class Gemma3(ViT):
    """The whole image as one square, and one row per square of ``merge * merge`` patches."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.merge = hparams.get_int("projector.scale_factor", 4)
        if self.merge < 1 or self.side % self.merge:
            raise hparams.wrong("projector.scale_factor", f"is {self.merge}, for {self.side} patches a side")

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        square = resize(pixels, self.image_size, self.image_size, "bilinear")
        rows = patches(square, self.patch_size, self.mean, self.std)
        piece = ImagePiece({"patches": rows, **corners((self.side, self.side), self.merge)})
        return ["\n\n<start_of_image>", piece, "<end_of_image>\n\n"]

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.patch_embeddings(g) + self.positions(g))
        x = blocks.layer_norm(g, x, "v.post_ln", self.eps)
        x = functools.reduce(Tensor.__add__, gathered(g, x, self.merge, self.n_rows)) * self.merge**-2
        x = blocks.rms_norm(g, x, "mm.soft_emb_norm", self.eps)
        stored = g.weight("mm.input_projection.weight", (self.n_embd, self.width))
        return g.linear(x, g.derived("mm.input_projection.rows", (self.width, self.n_embd), lambda w: w.T, stored))
