"""LLaVA 1.5 (Liu et al. 2023, arXiv:2310.03744), 1.6, and Granite Vision (IBM 2025, arXiv:2502.09927)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import ImagePiece, JoinedPieces
from pumice_architectures.vision.pixels import Pixels, check_ratio, patches, resize, tiles
from pumice_architectures.vision.vit import Grid, ViT, among, class_inputs

MOST_TILES = 64  # of an image


class Llava(ViT):
    """CLIP or SigLIP, the outputs of some blocks, and two linear maps.

    Files of LLaVA 1.5 have no sizes of tiled images, and give the middle square of an image; others give the whole in
    one square, then tiles, joined to lines that an embedding ends.
    """

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_rows = self.side**2 + 1
        self.side_out = self.side  # rows a side that result from a square
        self.features = self._numbers("feature_layer", self.n_layer) or [self.n_layer - 1]
        self.n_run = max(self.features)
        sides = self._numbers("image_grid_pinpoints", 1 << 16)
        self.resolutions = list(zip(sides[::2], sides[1::2], strict=False))  # height and width
        for height, width in self.resolutions:
            n_tiles = height // self.image_size * (width // self.image_size)
            if height % self.image_size or width % self.image_size or not 0 < n_tiles <= MOST_TILES:
                raise hparams.wrong(
                    "image_grid_pinpoints",
                    f"has {height} x {width}, expected 1 to {MOST_TILES} tiles of {self.image_size}",
                )
        self._has_class = self._has_line_ends = False
        self._outputs: dict[int, Tensor] = {}

    def _numbers(self, key: str, most: int) -> list[int]:
        values = self.hparams.metadata.get(f"clip.vision.{key}", ())
        values = values.tolist() if isinstance(values, np.ndarray) else values
        if not isinstance(values, Sequence) or any(not isinstance(n, int) or not 0 <= n <= most for n in values):
            raise self.hparams.wrong(key, f"is {values!r:.60}, expected numbers from 0 to {most}")
        return list(values)

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece | JoinedPieces]:
        check_ratio(pixels)
        if not self.resolutions:
            return [self._piece(self._middle(pixels))]
        height, width = best_resolution(pixels.shape[:2], self.resolutions)
        whole = resize(pixels, self.image_size, self.image_size, "bicubic")
        cells = tiles(padded(pixels, height, width), self.image_size)
        grid = height // self.image_size, width // self.image_size
        order = self.order(pixels.shape[:2], grid)
        return [JoinedPieces([self._piece(cell) for cell in (whole, *cells)], order)]

    def order(self, shape: Sequence[int], grid: Grid) -> NDArray[np.int32]:
        """Return the rows of the whole, then the lines of the tiles, without those of the padding.

        ``shape``: pixels of the image; ``grid``: rows and columns of tiles.
        """
        side, n = self.side_out, self.side_out**2 + self._has_line_ends
        y, x = np.indices((grid[0] * side, grid[1] * side))
        lines = n * (1 + y // side * grid[1] + x // side) + y % side * side + x % side
        height, width = lines.shape
        if shape[1] / shape[0] > width / height:
            padding = (height - int(round(shape[0] * (width / shape[1]), 7))) // 2
            lines = lines[padding : height - padding]
        else:
            padding = (width - int(round(shape[1] * (height / shape[0]), 7))) // 2
            lines = lines[:, padding : width - padding]
        if self._has_line_ends:
            lines = np.pad(lines, ((0, 0), (0, 1)), constant_values=side**2)
        return np.concatenate([np.arange(side**2), lines.reshape(-1)]).astype(np.int32)

    def _middle(self, pixels: Pixels) -> Pixels:
        """Return the middle square of an image, whose shorter side is scaled to the encoder's size."""
        size, (height, width) = self.image_size, pixels.shape[:2]
        if width <= height:
            resized = resize(pixels, size, int(size * height / width), "bicubic")
        else:
            resized = resize(pixels, int(size * width / height), size, "bicubic")
        top, left = (resized.shape[0] - size) // 2, (resized.shape[1] - size) // 2
        return resized[top : top + size, left : left + size]

    def _piece(self, square: Pixels) -> ImagePiece:
        rows = patches(square, self.patch_size, self.mean, self.std)
        patch_ids = np.arange(len(rows), dtype=np.int32) + np.int32(self._has_class)  # all but the class token's
        inputs = class_inputs(rows) if self._has_class else {"patches": rows}
        if not self._has_line_ends:
            return ImagePiece({**inputs, "patch_ids": patch_ids})
        ends = np.arange(len(rows) + 1, dtype=np.int32) // len(rows)
        return ImagePiece({**inputs, "patch_ids": np.append(patch_ids, patch_ids[:1]), "line_ends": ends})

    def build(self, g: GraphBuilder) -> Tensor:
        self._has_class = g.find_weight("v.class_embd") is not None
        line_end = g.find_weight("v.image_newline", (self.width,)) if self.resolutions else None
        self._has_line_ends = line_end is not None
        x = self.patch_embeddings(g)
        table = g.weight("v.position_embd.weight", (self.side**2 + self._has_class, self.n_embd))
        x = (self.with_class(g, x) if self._has_class else x) + g.embedding(table, g.positions)
        if g.find_weight("v.pre_ln.weight") is not None:
            x = blocks.layer_norm(g, x, "v.pre_ln", self.eps)
        self._outputs = {0: x}
        self.blocks(g, x)
        x = self._outputs[self.features[0]]
        for i in self.features[1:]:
            x = g.concat(x, self._outputs[i])
        size = g.size("n_patches", self.side**2 + self._has_line_ends)
        x = self.perceptron(g, g.get_rows(x, g.input("patch_ids", (size,), "i32")), "mm.0", "mm.2")
        return x if line_end is None else among(g, x, "line_ends", [line_end])

    def after_block(self, g: GraphBuilder, x: Tensor, i: int) -> None:
        self._outputs[i + 1] = x


def best_resolution(shape: Sequence[int], resolutions: Sequence[Grid]) -> Grid:
    """Return the height and width that keep most pixels of an image, and of these the one with the least padding."""
    best, kept, wasted = resolutions[0], 0, float("inf")
    for height, width in resolutions:
        scale = min(width / shape[1], height / shape[0])
        n = min(int(shape[1] * scale) * int(shape[0] * scale), shape[0] * shape[1])
        if n > kept or (n == kept and height * width - n < wasted):
            best, kept, wasted = (height, width), n, height * width - n
    return best


def padded(pixels: Pixels, height: int, width: int) -> Pixels:
    """Return an image scaled to fit a size, between black bars."""
    rows, columns = pixels.shape[:2]
    if width / columns < height / rows:
        inner = min(int(np.ceil(rows * (width / columns))), height), width
    else:
        inner = height, min(int(np.ceil(columns * (height / rows))), width)
    whole = np.zeros((height, width, 3), np.uint8)
    top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
    whole[top : top + inner[0], left : left + inner[1]] = resize(pixels, inner[1], inner[0], "bicubic")
    return whole
