"""DeepSeek V4 Flash Vision (DeepSeek 2026): lines of squares in pairs, column by column, between marks."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import GraphBuilder, HParams, ModelError, Tensor
from pumice.plugin.unstable import ImagePiece
from pumice_architectures.vision.any_size import Inputs
from pumice_architectures.vision.deepseek_ocr import GREY
from pumice_architectures.vision.pixels import Pixels, check_ratio, patches, resize
from pumice_architectures.vision.vit import MOST_PATCHES, PatchEncoder, Rotation, among, folded, limited, places

Size = tuple[int, int]  # height and width
INNER, START, END, LINE_END, PAD = range(5)  # kinds of rows
BLOCK = 4  # positions of the language model's smallest pools, at whose last place an image begins
USUAL_TOKENS, FEWEST_TOKENS, MOST_TOKENS = 384, 16, 4096  # of an image with all its marks
MOST_WIDE = 8  # times the height


class DeepSeek4V(PatchEncoder):
    """Images that keep their ratio on grey, in at most 384 tokens with those that begin, end and fill it."""

    bounds_tokens = True
    needs_gates = True

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.merge = hparams.get_int("projector.scale_factor")
        if not 0 < self.merge <= 16:
            raise hparams.wrong("projector.scale_factor", f"is {self.merge}, expected 1 to 16")
        if self.head_dim % 4:
            raise hparams.wrong("attention.head_count", f"is {self.n_head}, but heads need a multiple of 4 values")
        self.rotation = Rotation.halves(self.head_dim)
        square = (self.patch_size * self.merge) ** 2
        if 0 < (rows := hparams.get_int("image_max_tokens", 0)) < FEWEST_TOKENS:
            raise ModelError(f"image_max_tokens is {rows}, but images of this encoder need at least {FEWEST_TOKENS}")
        least = max(hparams.get_int("image_min_pixels", 0), 0)
        self.least, most = limited(hparams, least, USUAL_TOKENS * square, self.patch_size * self.merge, MOST_TOKENS)
        self.most_tokens = most // square
        self.n_rows = self.most_tokens * self.merge**2
        if self.n_rows > MOST_PATCHES:
            raise hparams.wrong("projector.scale_factor", f"is {self.merge}, for {self.most_tokens} tokens of an image")

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        shown = self.resized(pixels)
        grid = shown.shape[0] // self.patch_size, shown.shape[1] // self.patch_size
        inputs: Inputs = {
            "patches": patches(shown, self.patch_size, self.mean, self.std),
            "places": places(grid),
            **partial_corners(grid, self.merge),
            **line_inputs(-(-grid[0] // self.merge), -(-grid[1] // self.merge)),
        }
        return [ImagePiece(inputs, block=BLOCK)]

    def resized(self, pixels: Pixels) -> Pixels:
        """Return an image in its final size: stretched if it is very wide, else in the middle of a grey one."""
        (height, width), (rows, columns) = self.fitted(*pixels.shape[:2]), pixels.shape[:2]
        if columns >= MOST_WIDE * rows:
            return resize(pixels, width, height, "bicubic")
        inner = (height, width)
        if columns * height > width * rows:
            inner = max(round(rows / columns * width), 1), width
        elif columns * height < width * rows:
            inner = height, max(round(columns / rows * height), 1)
        top, left = (round((side - own) / 2) for side, own in zip((height, width), inner, strict=True))
        shown = np.full((height, width, 3), GREY, np.uint8)
        shown[top : top + inner[0], left : left + inner[1]] = resize(pixels, inner[1], inner[0], "bicubic")
        return shown

    def fitted(self, height: int, width: int) -> Size:
        """Return the largest size of whole patches, as in the authors' code, whose tokens are not too many."""
        width = min(width, MOST_WIDE * height)
        if height * width < self.least:
            scale = math.sqrt(self.least / (height * width))
            height, width = int(height * scale), int(width * scale)
        p, most = self.patch_size, self.most_tokens - (BLOCK - 1)
        size, budget = (-(-height // p) * p, -(-width // p) * p), most
        while self.n_tokens(size) > most:
            size = self._within(height, width, budget)
            budget -= 1
        return size

    def n_tokens(self, size: Size) -> int:
        """Return the tokens of an image without those that fill a block before it, as ``line_kinds`` has them."""
        rows, columns = (-(-side // self.patch_size // self.merge) for side in size)
        n = (rows + rows % 2) * (columns + 1)
        return n + n // 2 % 2 * 2 + 2

    def _within(self, height: int, width: int, budget: int) -> Size:
        """Return a size of about this ratio for a number of tokens, which rounding may exceed."""
        p, factor, ratio = self.patch_size, self.patch_size * self.merge, height / width
        wide = math.sqrt((budget - 2) / ratio + 0.25) - 0.5
        high = wide * ratio
        if wide < 1:
            return (budget - 2) // 4 * 2 * factor, factor
        if high < 2:
            return 2 * factor, max((budget - 2) // 2 - 1, 2) * factor
        scale = min(math.floor(wide) * factor / width, math.floor(high) // 2 * 2 * factor / height)
        return max(math.floor(height * scale / p), 1) * p, max(math.floor(width * scale / p), 1) * p

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.norm(g, self.blocks(g, self.patch_embeddings(g)), "v.post_ln")
        x = folded(g, x, "mm.1", self.merge, self.n_rows, partial=True)
        return self._lines(g, self.projected(g, x, "mm.2"))

    def _lines(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return the rows of squares among those that begin, end and fill the image and its lines."""
        size = g.size("n_lines", self.most_tokens)
        names = ("v.token_embd.img_start", "v.token_embd.img_end", "v.image_newline", "v.token_embd.img_pad")
        x = g.get_rows(x, g.input("line_ids", (size,), "i32"))
        return among(g, x, "line_kinds", [g.weight(name, (self.width,)) for name in names])


def partial_corners(grid: Size, merge: int) -> Inputs:
    """Return the inputs of ``gathered`` with ``partial``: squares at the end of a grid lack patches."""
    rows, columns = (-(-side // merge) * merge for side in grid)
    ids = np.full((rows, columns), -1, np.int32)
    ids[: grid[0], : grid[1]] = np.arange(grid[0] * grid[1]).reshape(grid)
    cells = ids.reshape(rows // merge, merge, -1, merge).transpose(1, 3, 0, 2).reshape(merge**2, -1)
    inputs: Inputs = {f"merged.{i}": np.maximum(row, 0) for i, row in enumerate(cells)}
    return inputs | {f"inside.{i}": (row >= 0).astype(np.float32)[:, None] for i, row in enumerate(cells)}


def line_kinds(rows: int, columns: int) -> NDArray[np.int32]:
    """Return the kind of each token of an image of ``rows * columns`` squares, with all that may fill a block."""
    kinds = np.full((rows + rows % 2, columns + 1), PAD, np.int32)
    kinds[:rows, :columns] = INNER
    kinds[:rows, columns] = LINE_END
    last = [PAD] * (kinds.size // 2 % 2 * 2)
    return np.array([*[PAD] * (BLOCK - 1), START, *_in_pairs(kinds), *last, END], np.int32)


def line_inputs(rows: int, columns: int) -> Inputs:
    """Return the inputs that place the rows of squares among the other rows of an image."""
    kinds = line_kinds(rows, columns)
    ids = np.zeros((rows + rows % 2, columns + 1), np.int32)
    ids[:rows, :columns] = np.arange(rows * columns).reshape(rows, columns)
    all_ids = np.zeros(len(kinds), np.int32)
    all_ids[BLOCK : BLOCK + ids.size] = _in_pairs(ids)
    return {"line_kinds": kinds, "line_ids": all_ids}


def _in_pairs(cells: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return cells of an even number of lines in the order of tokens: two lines at once, column by column."""
    return cells.reshape(len(cells) // 2, 2, -1).swapaxes(1, 2).reshape(-1)
