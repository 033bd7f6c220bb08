"""Qwen 2 VL (Wang et al. 2024, arXiv:2409.12191), 2.5 VL (Bai et al. 2025, arXiv:2502.13923) and 3 VL.

Images keep their ratio: their sides are multiples of a square of patches, which becomes one row. Rotary positions turn
the first half of a head's pairs by the patch's row and the other half by its column.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, ImagePiece, Tensor, mask_width
from pumice.plugin.nn import blocks
from pumice_architectures.vision.pixels import Pixels, check_ratio, fit_pixels, patches, resize
from pumice_architectures.vision.vit import MOST_PATCHES, Grid, PatchEncoder, corners, limited, merged, places

HIDDEN = np.float32(-1e30)  # added to the scores of patches in other windows


class Qwen2VL(PatchEncoder):
    least_rows = 4  # of an image, if the file does not say it
    most_rows = 4096

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.merge = hparams.get_int("spatial_merge_size", 2)
        if not 0 < self.merge <= 16:
            raise hparams.wrong("spatial_merge_size", f"is {self.merge}, expected 1 to 16")
        if self.head_dim % 4:
            raise hparams.wrong("attention.head_count", f"is {self.n_head}, but heads need a multiple of 4 values")
        self.factor = self.patch_size * self.merge
        self.least = hparams.get_int("image_min_pixels", self.least_rows * self.factor**2)
        self.most = min(hparams.get_int("image_max_pixels", self.most_pixels), self.most_pixels)
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
        height, width = pixels.shape[:2]
        height, width = fit_pixels(height, width, self.factor, self.least, self.most)
        resized = resize(pixels, width, height, "bicubic")
        rows = patches(resized, self.patch_size, self.mean, self.std)
        grid = height // self.patch_size, width // self.patch_size
        inputs = {"patches": rows, "places": places(grid), **corners(grid, self.merge), **self.more_inputs(grid)}
        piece = ImagePiece(inputs, (grid[0] // self.merge, grid[1] // self.merge))
        return ["<|vision_start|>", piece, "<|vision_end|>"]

    def more_inputs(self, grid: Grid) -> dict[str, NDArray[np.float32] | NDArray[np.int32]]:
        """Return further inputs of the graph for a grid of patches."""
        return {}

    def rotated(self, g: GraphBuilder, x: Tensor) -> Tensor:
        n = self.head_dim // 4
        freqs = tuple(10000 ** (-4 * i / self.head_dim) for i in range(n)) * 2
        where = g.input("places", (N_TOKENS, 2), "i32")
        return g.rope(x, where, freqs=freqs, neox=True, axes=(0,) * n + (1,) * n)

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.patch_embeddings(g))
        x = merged(g, self.norm(g, x, "v.post_ln"), self.merge, self.n_rows)
        return self.perceptron(g, x, "mm.0", "mm.2")


class Qwen25VL(Qwen2VL):
    """Most blocks attend within windows only. Their mask has a value per pair of patches, which limits the image."""

    most_rows = 2048

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.pattern = hparams.positive("n_wa_pattern")
        self.window = hparams.get_int("window_size", 112) // self.factor  # in merged rows a side
        if self.window < 1:
            raise hparams.wrong("window_size", f"is less than {self.factor} pixels")

    def more_inputs(self, grid: Grid) -> dict[str, NDArray[np.float32] | NDArray[np.int32]]:
        row, column = places(grid).T // (self.window * self.merge)
        window = row * grid[1] + column
        mask = np.zeros((len(window), mask_width(self.n_rows)), np.float32)
        mask[:, : len(window)] = np.where(window[:, None] == window, np.float32(0), HIDDEN)
        return {"windows": mask}

    def mask(self, g: GraphBuilder, i: int) -> Tensor | None:
        windows = g.input("windows", (N_TOKENS, mask_width(self.n_rows)))
        return None if (i + 1) % self.pattern == 0 else windows


class Qwen3VL(Qwen2VL):
    """Learned positions of a square grid, interpolated, besides the rotary ones; rows for the model's first layers."""

    least_rows = 64

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        flags = hparams.per_layer("is_deepstack_layers", self.n_layer, False)
        self.deep_layers = [i for i, flag in enumerate(flags) if flag]
        self.width *= 1 + len(self.deep_layers)
        self.side = hparams.positive("image_size") // self.patch_size
        if not 0 < self.side <= 256:
            raise hparams.wrong("image_size", f"has {self.side} patches a side, expected 1 to 256")
        self._after: list[Tensor] = []

    def more_inputs(self, grid: Grid) -> dict[str, NDArray[np.float32] | NDArray[np.int32]]:
        """Return the four nearest rows of the table and their weights (bilinear, with aligned corners)."""
        low, share = zip(*(self._interpolated(n) for n in grid), strict=True)
        inputs: dict[str, NDArray[np.float32] | NDArray[np.int32]] = {}
        for i in range(4):
            down, right = divmod(i, 2)
            rows = np.minimum(low[0] + down, self.side - 1)[:, None] * self.side
            ids = rows + np.minimum(low[1] + right, self.side - 1)
            parts = (weights if side else 1 - weights for weights, side in zip(share, (down, right), strict=True))
            inputs[f"near.{i}"] = ids.reshape(-1).astype(np.int32)
            inputs[f"weight.{i}"] = np.outer(*parts).reshape(-1, 1).astype(np.float32)
        return inputs

    def _interpolated(self, n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the rows of the table before ``n`` positions, and how far these are to the next row."""
        exact = np.linspace(0, self.side - 1, n, dtype=np.float32)
        low = np.floor(exact).astype(np.int64)
        return low, exact - low.astype(np.float32)

    def positions(self, g: GraphBuilder) -> Tensor:
        table = g.weight("v.position_embd.weight", (self.side**2, self.n_embd))
        near = [g.embedding(table, g.input(f"near.{i}", (N_TOKENS,), "i32")) for i in range(4)]
        parts = [row * g.input(f"weight.{i}", (N_TOKENS, 1)) for i, row in enumerate(near)]
        return parts[0] + parts[1] + parts[2] + parts[3]

    def after_block(self, g: GraphBuilder, x: Tensor, i: int) -> None:
        if i in self.deep_layers:
            self._after.append(x)

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.patch_embeddings(g) + self.positions(g))
        rows = merged(g, self.norm(g, x, "v.post_ln"), self.merge, self.n_rows)
        y = self.perceptron(g, rows, "mm.0", "mm.2")
        for i, stream in zip(self.deep_layers, self._after, strict=True):
            deep = f"v.deepstack.{i}."
            rows = blocks.layer_norm(g, merged(g, stream, self.merge, self.n_rows), f"{deep}norm", self.eps)
            y = g.concat(y, self.perceptron(g, rows, f"{deep}fc1", f"{deep}fc2"))
        return y
