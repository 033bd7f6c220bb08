"""LFM2-VL (Liquid AI 2025, arXiv:2511.23404), whose encoder is SigLIP 2 (Tschannen et al. 2025, arXiv:2502.14786)."""

from __future__ import annotations

import numpy as np

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import ImagePiece
from pumice_architectures.vision.interpolation import resampling
from pumice_architectures.vision.pixels import Pixels, check_ratio, fit_pixels, patches, resize, tile_grid, tiles
from pumice_architectures.vision.vit import MOST_PATCHES, PatchEncoder, corners, limited, merged

LEAST_ROWS, MOST_ROWS = 64, 256  # of an image that is no tile, if the file does not say it
TILE, MOST_TILES = 512, 64
TOLERANCE = 2  # an image with more than this many times the most pixels is cut into tiles


class LFM2VL(PatchEncoder):
    """An image that keeps its ratio, or tiles and a thumbnail; squares of ``merge * merge`` patches become one row."""

    bounds_tokens = True

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.merge = hparams.get_int("projector.scale_factor", 2)
        self.side = hparams.positive("image_size") // self.patch_size  # of the table of positions, in patches
        self.tile = hparams.get_int("preproc_image_size", TILE)
        self.fewest, self.most_tiles = (hparams.get_int(f"preproc_{k}_tiles", n) for k, n in (("min", 2), ("max", 10)))
        self.factor = self.patch_size * max(self.merge, 1)
        most = min(hparams.get_int("image_max_pixels", MOST_ROWS * self.factor**2), MOST_PATCHES * self.patch_size**2)
        least = hparams.get_int("image_min_pixels", LEAST_ROWS * self.factor**2)
        if not 0 < self.merge <= 16 or not 0 < self.side <= 256:
            raise hparams.wrong("image_size", f"has {self.side} patches a side, for squares of {self.merge}")
        if not 0 < self.fewest <= self.most_tiles <= MOST_TILES:
            raise hparams.wrong("preproc_max_tiles", f"is {self.most_tiles}, expected {self.fewest} to {MOST_TILES}")
        if self.tile < self.factor or self.tile % self.factor:
            raise hparams.wrong("preproc_image_size", f"is {self.tile}, which {self.factor} does not divide")
        if not 0 < least <= most:
            raise hparams.wrong("image_min_pixels", f"is {least}, expected 1 to {most}")
        self._has_tiles = not hparams.get_int("image_max_tokens", 0)  # with them, an image would have more tokens
        self.least, self.most = limited(hparams, least, most, self.factor, MOST_PATCHES // self.merge**2)
        self.n_rows = max(self.most, self.tile**2) // self.patch_size**2
        if not self.merge**2 <= self.n_rows <= MOST_PATCHES:
            raise hparams.wrong("preproc_image_size", f"is {self.tile}, for patches of {self.patch_size} pixels")

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        height, width = pixels.shape[:2]
        parts: list[str | ImagePiece] = ["<|image_start|>"]
        if self._is_large(height, width):
            columns, rows = tile_grid(height, width, self.tile, self.fewest, self.most_tiles)
            cells = tiles(resize(pixels, columns * self.tile, rows * self.tile, "bilinear"), self.tile)
            for number, cell in enumerate(cells if len(cells) > 1 else []):
                row, column = divmod(number, columns)
                parts += [f"<|img_row_{row + 1}_col_{column + 1}|>", self._piece(cell)]
            parts += ["<|img_thumbnail|>"] if len(cells) > 1 else []
        height, width = fit_pixels(height, width, self.factor, self.least, self.most, fewest=1)
        return [*parts, self._piece(resize(pixels, width, height, "bilinear")), "<|image_end|>"]

    def _is_large(self, height: int, width: int) -> bool:
        rounded = [max(round(side / self.factor) * self.factor, self.patch_size) for side in (height, width)]
        return self._has_tiles and rounded[0] * rounded[1] > TOLERANCE * self.most

    def _piece(self, pixels: Pixels) -> ImagePiece:
        grid = pixels.shape[0] // self.patch_size, pixels.shape[1] // self.patch_size
        shares = np.kron(*(resampling(self.side, n) for n in grid))
        rows = patches(pixels, self.patch_size, self.mean, self.std)
        return ImagePiece({"patches": rows, "shares": shares, **corners(grid, self.merge)})

    def positions(self, g: GraphBuilder) -> Tensor:
        """Return the table of positions in the size of the image's grid."""
        n = self.side**2
        table = g.weight("v.position_embd.weight", (n, self.n_embd))
        columns = g.derived("v.position_embd.columns", (self.n_embd, n), lambda w: w.T, table)
        return g.linear(g.input("shares", (N_TOKENS, n)), columns)

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.patch_embeddings(g) + self.positions(g))
        x = merged(g, self.norm(g, x, "v.post_ln"), self.merge, self.n_rows)
        if g.find_weight("mm.input_norm.weight") is not None:
            x = blocks.layer_norm(g, x, "mm.input_norm", 1e-5)
        return self.perceptron(g, x, "mm.1", "mm.2")
