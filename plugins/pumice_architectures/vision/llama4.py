"""Llama 4 (Meta 2025): square tiles by the image's ratio, and a small copy of the whole."""

from __future__ import annotations

import math

import numpy as np

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import ImagePiece
from pumice_architectures.vision.pixels import Pixels, check_ratio, patches, resize, tiles
from pumice_architectures.vision.vit import Rotation, ViT, class_inputs, corners, merged, places

MOST_TILES = 64


class Llama4(ViT):
    """A class token behind the patches, learned and rotary positions, and a pixel shuffle."""

    known_activation = "gelu_erf"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.merge = hparams.get_int("projector.scale_factor", 2)
        if self.merge < 1 or self.side % self.merge or self.head_dim % 4:
            raise hparams.wrong("projector.scale_factor", f"is {self.merge}, for {self.side} patches a side")
        self.most = hparams.get_int("preproc_max_tiles", 16)
        if not 0 < self.most <= MOST_TILES:
            raise hparams.wrong("preproc_max_tiles", f"is {self.most}, expected 1 to {MOST_TILES}")
        self.n_rows = self.side**2 + 1
        self.rotation = Rotation.columns_first(self.head_dim)

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        height, width = pixels.shape[:2]
        rows, columns = best_canvas(height, width, self.image_size, self.most)
        cells = tiles(self._on_canvas(pixels, rows, columns), self.image_size)
        parts: list[str | ImagePiece] = ["<|image_start|>"]
        for number, cell in enumerate(cells if len(cells) > 1 else []):
            ends_row = number % columns == columns - 1
            parts += [self._piece(cell), "<|tile_y_separator|>" if ends_row else "<|tile_x_separator|>"]
        whole = resize(pixels, self.image_size, self.image_size, "bilinear") if len(cells) > 1 else cells[0]
        return [*parts, "<|image|>", self._piece(whole), "<|image_end|>"]

    def _on_canvas(self, pixels: Pixels, rows: int, columns: int) -> Pixels:
        """Return the image in its ratio on black tiles, enlarged to one tile at most."""
        size, (height, width) = self.image_size, pixels.shape[:2]
        high, wide = min(max(height, size), rows * size), min(max(width, size), columns * size)
        if wide / width < high / height:
            high = min(math.floor(height * (wide / width)), high)
        else:
            wide = min(math.floor(width * (high / height)), wide)
        resized = resize(pixels, max(wide, 1), max(high, 1), "bilinear")
        missing = rows * size - resized.shape[0], columns * size - resized.shape[1]
        return np.pad(resized, ((0, missing[0]), (0, missing[1]), (0, 0)))

    def _piece(self, tile: Pixels) -> ImagePiece:
        rows = patches(tile, self.patch_size, self.mean, self.std)
        last_first = class_inputs(rows[::-1])
        grid = (self.side, self.side)
        inputs = {name: np.ascontiguousarray(values[::-1]) for name, values in last_first.items()}
        where = np.concatenate([places(grid) + np.int32(1), np.zeros((1, 2), np.int32)])
        return ImagePiece({**inputs, "places": where, **corners(grid, self.merge)})

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.with_class(g, self.patch_embeddings(g)) + self.positions(g)
        x = self.norm(g, self.blocks(g, self.norm(g, x, "v.pre_ln")), "v.post_ln")
        x = merged(g, x, self.merge, self.n_rows)
        for i in (1, 2):
            x = g.gelu_erf(blocks.linear(g, x, f"mm.model.mlp.{i}"))
        return blocks.linear(g, x, "mm.model.fc", self.width)


def best_canvas(height: int, width: int, size: int, most: int) -> tuple[int, int]:
    """Return rows and columns of the tiles to which an image is enlarged least or, if need be, reduced least.

    Of equal ones that with the fewest pixels is taken.
    """
    grids = [(rows, n // rows) for n in range(most, 0, -1) for rows in range(1, n + 1) if n % rows == 0]
    scales = [min(rows * size / height, columns * size / width) for rows, columns in grids]
    enlarging = [scale for scale in scales if scale >= 1]
    chosen = min(enlarging) if enlarging else max(scales)
    return min((grid for grid, scale in zip(grids, scales, strict=True) if scale == chosen), key=math.prod)
