"""Encoders of images that keep their ratio; a square of patches becomes one row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import HParams
from pumice.plugin.unstable import ImagePiece
from pumice_architectures.vision.pixels import Pixels, check_ratio, fit_pixels, patches, resize
from pumice_architectures.vision.vit import MOST_PATCHES, Grid, PatchEncoder, corners, limited, places

Inputs = dict[str, NDArray[np.float32] | NDArray[np.int32]]


class AnySize(PatchEncoder):
    """Images whose sides become multiples of a square of ``merge * merge`` patches, within limits of pixels.

    Attributes:
        merge_key: key of ``merge``, which is ``usual_merge`` in a file without it.
        least_rows, usual_rows: fewest and most rows of an image, if the file does not say it.
        most_rows: most rows that the file may name; also its default where ``usual_rows`` is 0.
        filter: of Pillow, by which images are resized.
        around: texts before and after an image.
        has_axes: rows of the image have positions with a row and a column.
    """

    bounds_tokens = True
    merge_key = "spatial_merge_size"
    usual_merge = 2
    least_rows = 4
    usual_rows = 0
    most_rows = 4096
    filter = "bicubic"
    around = ("<|vision_start|>", "<|vision_end|>")
    has_axes = True

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.merge = hparams.get_int(self.merge_key, self.usual_merge)
        if not 0 < self.merge <= 16:
            raise hparams.wrong(self.merge_key, f"is {self.merge}, expected 1 to 16")
        if self.head_dim % 4:
            raise hparams.wrong("attention.head_count", f"is {self.n_head}, but heads need a multiple of 4 values")
        self.factor = self.patch_size * self.merge
        self.least = hparams.get_int("image_min_pixels", self.least_rows * self.factor**2)
        usual = (self.usual_rows or self.most_rows) * self.factor**2
        self.most = min(hparams.get_int("image_max_pixels", usual), self.most_pixels)
        if not 0 < self.least <= self.most:
            raise hparams.wrong("image_min_pixels", f"is {self.least}, expected 1 to {self.most}")
        self.least, self.most = limited(hparams, self.least, self.most, self.factor, self.most_rows)
        self.n_rows = self.most // self.patch_size**2
        if self.n_rows < self.merge**2 or self.n_rows > MOST_PATCHES:
            raise hparams.wrong("image_max_pixels", f"is {self.most}, for patches of {self.patch_size} pixels")

    @property
    def most_pixels(self) -> int:
        return self.most_rows * self.factor**2

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        before, after = self.around
        return [before, self.piece(self.resized(pixels)), after]

    def resized(self, pixels: Pixels) -> Pixels:
        """Return an image in a size of whole squares."""
        height, width = self.fitted(*pixels.shape[:2])
        return resize(pixels, width, height, self.filter)

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width to which an image is resized."""
        return fit_pixels(height, width, self.factor, self.least, self.most)

    def piece(self, pixels: Pixels) -> ImagePiece:
        """Return the inputs of an image in its final size."""
        grid = pixels.shape[0] // self.patch_size, pixels.shape[1] // self.patch_size
        rows = patches(pixels, self.patch_size, self.mean, self.std)
        inputs = {"patches": rows, "places": places(grid), **corners(grid, self.merge), **self.more_inputs(grid)}
        if self.reads_pairs:
            inputs["next_patches"] = rows
        return ImagePiece(
            self.arranged(inputs, grid), (grid[0] // self.merge, grid[1] // self.merge) if self.has_axes else None
        )

    def piece_of_pair(self, first: Pixels, second: Pixels) -> ImagePiece:
        """Return the inputs of two frames of a video in their final size."""
        piece = self.piece(first)
        if not self.reads_pairs:
            return piece
        grid = first.shape[0] // self.patch_size, first.shape[1] // self.patch_size
        rows = self.arranged({"next_patches": patches(second, self.patch_size, self.mean, self.std)}, grid)
        return replace(piece, inputs={**piece.inputs, **rows})

    def arranged(self, inputs: Inputs, grid: Grid) -> Inputs:
        """Return the inputs of a grid of patches in the order of the graph's rows."""
        return inputs

    def more_inputs(self, grid: Grid) -> Inputs:
        """Return further inputs of the graph for a grid of patches."""
        return {}
