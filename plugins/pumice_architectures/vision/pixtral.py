"""Pixtral (Agrawal et al. 2024, arXiv:2410.07073), also of Mistral Small 3.1 and LightOnOCR, which merge squares."""

from __future__ import annotations

import math

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.unstable import ImagePiece
from pumice_architectures.vision.any_size import Inputs
from pumice_architectures.vision.pixels import Pixels, check_ratio, fit_pixels, patches, resize
from pumice_architectures.vision.vit import MOST_PATCHES, Grid, PatchEncoder, Rotation, corners, folded, limited, places


class Pixtral(PatchEncoder):
    """Images that keep their ratio; a token ends each row of the result, and another one the image."""

    bounds_tokens = True
    needs_gates = True

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.merge = hparams.get_int("spatial_merge_size", 1)
        self.longest = hparams.positive("image_size")
        self.factor = self.patch_size * max(self.merge, 1)
        self.side = -(-self.longest // self.factor) * max(self.merge, 1)  # patches
        self.n_rows = self.side**2
        if not 0 < self.merge <= 16 or not 0 < self.n_rows <= MOST_PATCHES:
            raise hparams.wrong("image_size", f"is {self.longest}, for squares of {self.merge} patches a side")
        most = self.n_rows // self.merge**2  # tokens
        self.least, self.most = limited(hparams, 1, most * self.factor**2, self.factor, most)
        if self.head_dim % 4:
            raise hparams.wrong("attention.head_count", f"is {self.n_head}, but heads need a multiple of 4 values")
        n = self.head_dim // 4
        freqs = tuple(10000 ** (-2 * i / self.head_dim) for i in (*range(0, 2 * n, 2), *range(1, 2 * n, 2)))
        self.rotation = Rotation(freqs, (0,) * n + (1,) * n, neox=False)

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        inputs, grid = self.inputs(pixels)
        return [ImagePiece(inputs, grid, row_end="[IMG_BREAK]"), "[IMG_END]"]

    def inputs(self, pixels: Pixels) -> tuple[Inputs, Grid]:
        """Return the inputs of an image, and rows and columns of its tokens."""
        check_ratio(pixels)
        height, width = pixels.shape[:2]
        ratio = max(height / self.longest, width / self.longest)
        if ratio > 1:
            height, width = max(math.floor(height / ratio), 1), max(math.floor(width / ratio), 1)
        rows, columns = self._fitted(-(-height // self.factor), -(-width // self.factor))
        resized = resize(pixels, columns * self.factor, rows * self.factor, "bicubic")
        grid = rows * self.merge, columns * self.merge
        inputs: Inputs = {
            "patches": patches(resized, self.patch_size, self.mean, self.std),
            "places": places(grid),
            **corners(grid, self.merge),
        }
        return inputs, (rows, columns)

    def _fitted(self, rows: int, columns: int) -> tuple[int, int]:
        """Return rows and columns of tokens as near as the options allow, within the longest side."""
        height, width = rows * self.factor, columns * self.factor
        if self.least <= height * width <= self.most:
            return rows, columns
        height, width = fit_pixels(height, width, self.factor, self.least, self.most)
        most_side = self.side // self.merge
        return min(height // self.factor, most_side), min(width // self.factor, most_side)

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.norm(g, self.patch_embeddings(g), "v.pre_ln"))
        if g.find_weight("mm.input_norm.weight") is not None:
            x = self.norm(g, x, "mm.input_norm")
        if self.merge > 1:
            x = folded(g, x, "mm.patch_merger", self.merge, self.n_rows, self.n_embd)
        return self.perceptron(g, x, "mm.1", "mm.2")


class LightOnOCR(Pixtral):
    """LightOnOCR (LightOn 2025), whose rows follow each other without texts between."""

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        return [ImagePiece(self.inputs(pixels)[0])]
