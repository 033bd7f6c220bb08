"""Step3-VL (StepFun 2026): windows of an image and the whole, with convolutions behind the encoder."""

from __future__ import annotations

import numpy as np

from pumice.plugin import GraphBuilder, HParams, MediaError, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import ImagePiece
from pumice_architectures.vision.convolution import convolved, tap_inputs
from pumice_architectures.vision.interpolation import table_inputs, table_positions
from pumice_architectures.vision.pixels import Pixels, check_ratio, patches, resize
from pumice_architectures.vision.vit import Rotation, ViT, places

WINDOW = 9 / 13  # of the side of the whole: 504 of 728 pixels
LONGEST = 3024
MOST_SIDE = 8192
MOST_WINDOWS = 256  # of an image; one of the published size has at most 95
THIN, THIN_RATIO = 32, 4  # an image with a shorter side and a larger ratio is put on a square
ELONGATED = 1.5  # ratio from which a small image has windows, too
REMAINDER = 0.2  # of a window, from which it is filled up instead of cut off


class Step3VL(ViT):
    """Rotary positions besides learned ones, which are interpolated for windows; 3 x 3 convolutions of stride 2."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.rotation = Rotation.columns_first(self.head_dim)
        self.longest = hparams.get_int("preproc_image_size", LONGEST)
        if not self.image_size <= self.longest <= MOST_SIDE:
            raise hparams.wrong("preproc_image_size", f"is {self.longest}, expected {self.image_size} to {MOST_SIDE}")
        if self.head_dim % 4:
            raise hparams.wrong("attention.head_count", f"is {self.n_head}, but heads need a multiple of 4 values")
        self.window = max(round(self.side * WINDOW), 1) * self.patch_size

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        height, width = pixels.shape[:2]
        if min(height, width) < THIN and max(height, width) > THIN_RATIO * min(height, width):
            longest = max(height, width)
            pixels = np.pad(pixels, ((0, longest - height), (0, longest - width), (0, 0)))
            height = width = longest
        if max(height, width) > self.longest:
            scale = self.longest / max(height, width)
            height, width = max(int(height * scale), 1), max(int(width * scale), 1)
        parts: list[str | ImagePiece] = []
        if side := self._side(height, width):
            high, wide = (_snapped(n, side) for n in (height, width))
            if (n := -(-high // side) * -(-wide // side)) > MOST_WINDOWS:
                size = f"{pixels.shape[1]} x {pixels.shape[0]}"
                raise MediaError("image", f"{size} pixels have {n} windows; at most {MOST_WINDOWS} are supported")
            resized = resize(pixels, wide, high, "bilinear")
            for y in range(0, high, side):
                for x in range(0, wide, side):
                    cell = resize(resized[y : y + side, x : x + side], self.window, self.window, "bilinear")
                    parts += ["<patch_start>", self._piece(cell), "<patch_end>"]
                parts += ["<patch_newline>"] if y + side < high else []
        whole = resize(resize(pixels, width, height, "bilinear"), self.image_size, self.image_size, "bilinear")
        return [*parts, "<im_start>", self._piece(whole), "<im_end>"]

    def _side(self, height: int, width: int) -> int:
        """Return the pixels a side of a window; 0 for an image without windows."""
        shorter, longer = sorted((height, width))
        if longer <= self.image_size:
            return shorter if longer / shorter > ELONGATED else 0
        return min(shorter, self.window) if longer / shorter > THIN_RATIO else self.window

    def _piece(self, pixels: Pixels) -> ImagePiece:
        grid = pixels.shape[0] // self.patch_size, pixels.shape[1] // self.patch_size
        halved = -(-grid[0] // 2), -(-grid[1] // 2)
        rows = patches(pixels, self.patch_size, self.mean, self.std)
        inputs = {"patches": rows, "places": places(grid), **table_inputs(self.side, grid, "linear")}
        return ImagePiece({**inputs, **tap_inputs("half", grid, 3, 2), **tap_inputs("quarter", halved, 3, 2)})

    def build(self, g: GraphBuilder) -> Tensor:
        table = g.weight("v.position_embd.weight", (self.side**2, self.n_embd))
        x = self.norm(g, self.patch_embeddings(g) + table_positions(g, table, "linear"), "v.pre_ln")
        x = self.blocks(g, x)
        halved = -(-self.side // 2)
        x = convolved(g, x, "half", "mm.0", g.size("n_half", halved**2))
        x = convolved(g, x, "quarter", "mm.1", g.size("n_quarter", (-(-halved // 2)) ** 2))
        return blocks.linear(g, x, "mm.model.fc", self.width)


def _snapped(n: int, side: int) -> int:
    """Return a length in whole windows; one that is shorter than a window remains."""
    return n if n < side else side * (n // side + (n % side > REMAINDER * side))
