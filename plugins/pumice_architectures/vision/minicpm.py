"""MiniCPM-V 2.5 to 4.5 (Yao et al. 2024, arXiv:2408.01800): slices by the ratio, each as a fixed number of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, ImagePiece, ModelError, Tensor, fixed, mask_width
from pumice.plugin.nn import blocks
from pumice_architectures.vision.pixels import Pixels, check_ratio, patches, resize
from pumice_architectures.vision.vit import PatchEncoder

MOST_SLICES = 9
MOST_ROWS = 4096  # of a slice, since their mask has a value per pair
OLD_VERSION, OLD_ROWS, ROWS = 2, 96, 64  # MiniCPM-V 2.5, whose slices have other texts around
HEAD_DIM = 128  # of the resampler
EPSILON = 1e-6
HIDDEN = np.float32(-1e30)  # added to the scores of rows that are no patches


class MiniCPMV(PatchEncoder):
    """SigLIP over the whole image and its slices, then learned queries that attend to the patches (a resampler).

    Queries are rows behind the patches, which no row attends to.
    """

    def __init__(self, hparams: HParams) -> None:
        # Published files have 0; the width is that of a tensor.
        super().__init__(HParams({**hparams.metadata, "clip.vision.projection_dim": 1}))
        self.size = hparams.positive("image_size")
        version = self._number("clip.minicpmv_version", OLD_VERSION)
        self.is_old = version <= OLD_VERSION
        self.n_queries = self._number("clip.minicpmv_query_num", 0) or (OLD_ROWS if self.is_old else ROWS)
        if not 0 < self.n_queries <= MOST_ROWS:
            raise ModelError(f"clip.minicpmv_query_num is {self.n_queries}, expected 1 to {MOST_ROWS}")
        # Sides are rounded to patches, which adds the most to thin images.
        self.n_patches = 64 + 3 * self.size**2 // (2 * self.patch_size**2)
        self.n_rows = self.n_patches + self.n_queries
        if self.size < self.patch_size or self.n_rows > MOST_ROWS:
            raise hparams.wrong("image_size", f"is {self.size}, for patches of {self.patch_size} pixels")
        self.side = 0  # of the table of positions; known once it is read

    def _number(self, key: str, default: int) -> int:
        value = self.hparams.metadata.get(key, default)
        if not isinstance(value, int) or value < 0:
            raise ModelError(f"{key} is {value!r}, expected a number")
        return value

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        height, width = pixels.shape[:2]
        grid = self.grid(height, width)
        whole = self._resized(pixels, *self.fitted(height, width, grows=grid is None))
        parts: list[str | ImagePiece] = ["<image>", self._piece(whole), "</image>"]
        if grid is None:
            return parts
        rows, columns = grid
        cell = self.fitted(max(round(height / rows), 1), max(round(width / columns), 1), grows=True)
        sliced = self._resized(pixels, cell[0] * rows, cell[1] * columns)
        cells = sliced.reshape(rows, cell[0], columns, cell[1], 3).swapaxes(1, 2)
        before, after = ("<image>", "</image>") if self.is_old else ("<slice>", "</slice>")
        parts += ["<slice>"] if self.is_old else []
        for i, row in enumerate(cells):
            parts += ["\n"] if i else []
            for slice in row:
                parts += [before, self._piece(slice), after]
        return [*parts, *(["</slice>"] if self.is_old else [])]

    def grid(self, height: int, width: int) -> tuple[int, int] | None:
        """Return rows and columns of slices whose ratio is nearest to an image's; None for an image without slices."""
        n = min(math.ceil(width * height / self.size**2), MOST_SLICES)
        if n <= 1:
            return None
        best, nearest = (1, 1), math.inf
        for number in (n - 1, n, n + 1):
            if not 1 < number <= MOST_SLICES:
                continue
            for rows in (rows for rows in range(1, number + 1) if number % rows == 0):
                distance = abs(math.log(width / height) - math.log(number // rows / rows))
                if distance < nearest or (distance == nearest and rows > best[0]):
                    best, nearest = (rows, number // rows), distance
        return best

    def fitted(self, height: float, width: float, grows: bool) -> tuple[int, int]:
        """Return height and width in whole patches, with at most the pixels of a slice; ``grows``: exactly as many."""
        if height * width > self.size**2 or grows:
            ratio = width / height
            height = int(self.size / math.sqrt(ratio))
            width = int(height * ratio)
        rounded = [max(round(side / self.patch_size), 1) * self.patch_size for side in (height, width)]
        return rounded[0], rounded[1]

    def _resized(self, pixels: Pixels, height: int, width: int) -> Pixels:
        return resize(pixels, width, height, "bicubic")

    def _piece(self, pixels: Pixels) -> ImagePiece:
        rows, columns = pixels.shape[0] // self.patch_size, pixels.shape[1] // self.patch_size
        flat = patches(pixels, self.patch_size, self.mean, self.std)
        n, n_all = len(flat), len(flat) + self.n_queries
        y, x = np.indices((rows, columns), np.int32).reshape(2, -1)
        where = np.zeros(n_all, np.int32)
        where[:n] = y * self.side // rows * self.side + x * self.side // columns
        queries = np.maximum(np.arange(n_all, dtype=np.int32) - n, 0)
        mask = np.zeros((n_all, mask_width(self.n_rows)), np.float32)
        mask[:, n:n_all] = HIDDEN
        return ImagePiece(
            {
                "patches": np.concatenate([flat, np.zeros((self.n_queries, flat.shape[1]), np.float32)]),
                "buckets": where,
                "queries": queries,
                "no_queries": mask,
                "sines": np.pad(sines(y, x, self.width), ((0, self.n_queries), (0, 0))),
                "answers": np.arange(n, n_all, dtype=np.int32),
            }
        )

    def mask(self, g: GraphBuilder, i: int) -> Tensor | None:
        return g.input("no_queries", (N_TOKENS, mask_width(self.n_rows)))

    def build(self, g: GraphBuilder) -> Tensor:
        query, table = g.weight("resampler.query"), g.weight("v.position_embd.weight")
        self.side = math.isqrt(int(table.shape[0]))
        if len(table.shape) != 2 or self.side**2 != table.shape[0]:
            raise ModelError(
                f"tensor v.position_embd.weight has shape {list(table.shape)}, expected a square's patches"
            )
        self.width = int(query.shape[-1])
        if fixed(query.shape) != (self.n_queries, self.width) or self.width % HEAD_DIM:
            raise ModelError(f"tensor resampler.query has shape {list(query.shape)}, for {self.n_queries} queries")
        x = self.patch_embeddings(g) + g.embedding(table, g.input("buckets", (N_TOKENS,), "i32"))
        x = self.norm(g, self.blocks(g, x), "v.post_ln")
        return self._resampled(g, x, g.embedding(query, g.input("queries", (N_TOKENS,), "i32")))

    def _resampled(self, g: GraphBuilder, x: Tensor, queries: Tensor) -> Tensor:
        """Return a row per query, from the patches among ``x``."""
        v = blocks.layer_norm(g, blocks.linear(g, x, "resampler.kv", self.width), "resampler.ln_kv", EPSILON)
        k = v + g.input("sines", (N_TOKENS, self.width))
        q = blocks.layer_norm(g, queries, "resampler.ln_q", EPSILON)
        n_heads = self.width // HEAD_DIM
        heads = [
            blocks.linear(g, y, f"resampler.attn.{name}", self.width).reshape(N_TOKENS, n_heads, HEAD_DIM)
            for name, y in (("q", q), ("k", k), ("v", v))
        ]
        y = g.attention(*heads, scale=HEAD_DIM**-0.5, causal=False, cache=False, mask=self.mask(g, 0))
        y = g.get_rows(
            y.reshape(N_TOKENS, self.width), g.input("answers", (g.size("n_queries", self.n_queries),), "i32")
        )
        y = blocks.linear(g, y, "resampler.attn.out", self.width)
        y = blocks.layer_norm(g, y, "resampler.ln_post", EPSILON)
        return blocks.linear(g, y, "resampler.proj", self.width)


def sines(y: NDArray[np.int32], x: NDArray[np.int32], width: int) -> NDArray[np.float32]:
    """Return ``[n, width]``: sines and cosines of columns, then of rows, by ``width / 4`` frequencies each."""
    n = width // 4
    freqs = 10000.0 ** (-np.arange(n) / n)
    angles: Sequence[NDArray[np.float64]] = [where[:, None] * freqs for where in (x, y)]
    return np.concatenate([f(angle) for angle in angles for f in (np.sin, np.cos)], 1).astype(np.float32)
