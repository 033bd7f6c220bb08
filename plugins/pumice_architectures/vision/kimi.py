"""Kimi-VL (Moonshot AI 2025, arXiv:2504.07491) and Kimi K2.5, whose encoder is MoonViT."""

from __future__ import annotations

import math

import numpy as np

from pumice.plugin import GraphBuilder, HParams, Tensor, Weight
from pumice.plugin.nn import blocks
from pumice_architectures.vision.any_size import AnySize, Inputs
from pumice_architectures.vision.interpolation import table_inputs, table_positions
from pumice_architectures.vision.pixels import Pixels, resize
from pumice_architectures.vision.vit import Grid, Rotation, merged

MOST_SIDE = 512  # patches


class KimiVL(AnySize):
    """Images are only scaled down; black pixels at the right and the bottom complete the squares."""

    merge_key = "projector.scale_factor"
    least_rows, most_rows = 1, 1024
    around = ("<|media_start|>", "<|media_end|>")
    has_axes = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.rotation = Rotation.alternating(self.head_dim)
        self.most_patches = self.n_rows
        self.side = self.table_side(self.patch_size)
        # filling up makes an image larger: a row and a column of squares
        self.n_rows += 2 * self.merge * (math.isqrt(self.n_rows) + MOST_SIDE)

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        n = max(height // self.patch_size, 1) * max(width // self.patch_size, 1)
        most_side = MOST_SIDE * self.patch_size
        scale = min(1.0, math.sqrt(self.most_patches / n), most_side / height, most_side / width)
        return max(int(height * scale), 1), max(int(width * scale), 1)

    def resized(self, pixels: Pixels) -> Pixels:
        height, width = self.fitted(*pixels.shape[:2])
        missing = [(0, -side % self.factor) for side in (height, width)]
        return np.pad(resize(pixels, width, height, self.filter), (*missing, (0, 0)))

    def more_inputs(self, grid: Grid) -> Inputs:
        return table_inputs(self.side, grid, "cubic")

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.patch_embeddings(g) + table_positions(g, self._table(g), "cubic"))
        x = blocks.layer_norm(g, self.norm(g, x, "v.post_ln"), "mm.input_norm", 1e-5)
        return self.perceptron(g, merged(g, x, self.merge, self.n_rows), "mm.1", "mm.2")

    def _table(self, g: GraphBuilder) -> Weight:
        """Return the table of positions ``[side * side, n_embd]``, which files may have in three dimensions."""
        name, shape = "v.position_embd.weight", (self.side**2, self.n_embd)
        stored = g.weight(name)
        if stored.shape == (self.side, self.side, self.n_embd):
            return g.derived(f"{name}.flat", shape, lambda w: w.reshape(shape), stored)
        return g.weight(name, shape)


class KimiK25(KimiVL):
    """The file has the pairs of queries and keys in the order of Llama 4."""

    most_rows = 4096
    around = ("<|media_begin|>", "<|media_end|>")

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.rotation = Rotation.columns_first(self.head_dim)
