"""MiniCPM-V 2.5 to 4.5 (Yao et al. 2024, arXiv:2408.01800): slices by the ratio, each as a fixed number of rows."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, ModelError, Tensor, fixed
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import HIDDEN, Frames, ImagePiece, VideoForm, VideoPlan, mask_width
from pumice_architectures.vision.pixels import MOST_RATIO, Pixels, check_ratio, check_sides, patches, resize
from pumice_architectures.vision.vit import Grid, PatchEncoder, corners, gathered, merged, window_mask

MOST_SLICES = 9
MOST_FRAMES = 128  # that MiniCPM-V 4.6 sees of a video
MOST_OLDER_FRAMES = 64  # that its predecessors see
MOST_ROWS = 4096  # of a slice, since their mask has a value per pair
OLD_VERSION, OLD_ROWS, ROWS = 2, 96, 64  # MiniCPM-V 2.5, whose slices have other texts around
HEAD_DIM = 128  # of the resampler
EPSILON = 1e-6


class Sliced(PatchEncoder):
    """SigLIP over the whole image and its slices, with positions by the place within each of them.

    Attributes:
        factor: pixels a side of what becomes a row, or a patch.
        is_old: slices have the texts of MiniCPM-V 2.5 around.
        side: patches a side of the table of positions; 0 until it is read.
        frame_end: text between the frames of a video.
    """

    sees_videos = True
    factor: int
    is_old = False
    frame_end = ""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.size = hparams.positive("image_size")
        self.side = 0

    def read_positions(self, g: GraphBuilder) -> Tensor:
        """Return the positions of patches, and read the size of their table."""
        table = g.weight("v.position_embd.weight")
        self.side = math.isqrt(int(table.shape[0]))
        if len(table.shape) != 2 or self.side**2 != table.shape[0]:
            raise ModelError(
                f"tensor v.position_embd.weight has shape {list(table.shape)}, expected a square's patches"
            )
        return g.embedding(table, g.input("buckets", (N_TOKENS,), "i32"))

    def buckets(self, grid: Grid) -> NDArray[np.int32]:
        """Return the row of the table of positions of each patch."""
        y, x = np.indices(grid, np.int32).reshape(2, -1)
        where: NDArray[np.int32] = y * self.side // grid[0] * self.side + x * self.side // grid[1]
        return where

    @property
    def most_patches(self) -> int:
        """The most patches of a slice: sides are rounded to the factor, which adds the most to thin images."""
        thin = math.ceil(math.sqrt(MOST_RATIO)) * self.size
        return (self.size**2 + thin * self.factor + self.factor**2) // self.patch_size**2

    @abstractmethod
    def piece(self, pixels: Pixels) -> ImagePiece:
        """Return the inputs of the whole image or a slice."""

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        height, width = pixels.shape[:2]
        grid = self.grid(height, width)
        whole = self._resized(pixels, *self.fitted(height, width, grows=grid is None))
        parts: list[str | ImagePiece] = ["<image>", self.piece(whole), "</image>"]
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
                parts += [before, self.piece(slice), after]
        return [*parts, *(["</slice>"] if self.is_old else [])]

    def plan_video(self, video: VideoForm) -> VideoPlan:
        check_sides(video.height, video.width)
        return VideoPlan(self.sampled(video), [self.fitted(video.height, video.width, grows=True)])

    def prepare_video(self, video: VideoForm, frames: Frames) -> Iterable[str | ImagePiece]:
        """Yield the frames as images without slices."""
        for i, frame in enumerate(frames):
            yield (self.frame_end if i else "") + "<image>"
            yield from (self.piece(frame), "</image>")

    @abstractmethod
    def sampled(self, video: VideoForm) -> list[int]:
        """Return the numbers of the frames that the model sees."""

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
        """Return height and width in multiples of the factor, with at most the pixels of a slice.

        ``grows``: with as many pixels.
        """
        if height * width > self.size**2 or grows:
            ratio = width / height
            height = int(self.size / math.sqrt(ratio))
            width = int(height * ratio)
        rounded = [max(round(side / self.factor), 1) * self.factor for side in (height, width)]
        return rounded[0], rounded[1]

    def _resized(self, pixels: Pixels, height: int, width: int) -> Pixels:
        return resize(pixels, width, height, "bicubic")


class MiniCPMV(Sliced):
    """Learned queries attend to the patches (a resampler). They are rows behind these, which no row attends to."""

    frame_end = "\n"

    def sampled(self, video: VideoForm) -> list[int]:
        """Return a frame a second; of more than 64, the middle ones of equal parts."""
        frames = list(range(0, video.n_frames, max(round(video.rate), 1)))
        n, part = MOST_OLDER_FRAMES, len(frames) / MOST_OLDER_FRAMES
        return frames if len(frames) <= n else [frames[int(i * part + part / 2)] for i in range(n)]

    def __init__(self, hparams: HParams) -> None:
        # Published files have 0; the width is that of a tensor.
        super().__init__(HParams({**hparams.metadata, "clip.vision.projection_dim": 1}))
        self.factor = self.patch_size
        version = self._number("clip.minicpmv_version", OLD_VERSION)
        self.is_old = version <= OLD_VERSION
        self.n_queries = self._number("clip.minicpmv_query_num", 0) or (OLD_ROWS if self.is_old else ROWS)
        if not 0 < self.n_queries <= MOST_ROWS:
            raise ModelError(f"clip.minicpmv_query_num is {self.n_queries}, expected 1 to {MOST_ROWS}")
        self.n_rows = self.most_patches + self.n_queries
        if self.size < self.patch_size or self.n_rows > MOST_ROWS:
            raise hparams.wrong("image_size", f"is {self.size}, for patches of {self.patch_size} pixels")

    def _number(self, key: str, default: int) -> int:
        value = self.hparams.metadata.get(key, default)
        if not isinstance(value, int) or value < 0:
            raise ModelError(f"{key} is {value!r}, expected a number")
        return value

    def piece(self, pixels: Pixels) -> ImagePiece:
        rows, columns = pixels.shape[0] // self.patch_size, pixels.shape[1] // self.patch_size
        flat = patches(pixels, self.patch_size, self.mean, self.std)
        n, n_all = len(flat), len(flat) + self.n_queries
        y, x = np.indices((rows, columns), np.int32).reshape(2, -1)
        where = np.zeros(n_all, np.int32)
        where[:n] = self.buckets((rows, columns))
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
        query = g.weight("resampler.query")
        self.width = int(query.shape[-1])
        if fixed(query.shape) != (self.n_queries, self.width) or self.width % HEAD_DIM:
            raise ModelError(f"tensor resampler.query has shape {list(query.shape)}, for {self.n_queries} queries")
        x = self.patch_embeddings(g) + self.read_positions(g)
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


class MiniCPMV46(Sliced):
    """MiniCPM-V 4.6: after some block squares of patches become one row, and squares of these after the last block.

    Blocks behind the first merging compute each row four times, once for each of its patches, since a step has one
    number of rows; equal keys do not change what attention gives.
    """

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.merge = hparams.get_int("projector.scale_factor", 4)
        if self.merge not in (2, 4):
            raise hparams.wrong("projector.scale_factor", f"is {self.merge}, expected 2 or 4")
        self.factor = self.patch_size * self.merge
        layers = hparams.integers("wa_layer_indexes", (6,))
        self.merges_after = layers[0] if layers else -1
        if self.merge == 4 and not 0 <= self.merges_after < self.n_layer:
            raise hparams.wrong("wa_layer_indexes", f"begins with {self.merges_after}, for {self.n_layer} blocks")
        self.n_rows = self.most_patches
        if self.size < self.factor or self.n_rows > MOST_ROWS:
            raise hparams.wrong("image_size", f"is {self.size}, for patches of {self.patch_size} pixels")

    def sampled(self, video: VideoForm) -> list[int]:
        """Return a frame a second; of long videos 128 tenths of a second, from the first to the last one."""
        if video.seconds <= MOST_FRAMES:
            return [min(int(i * video.rate), video.n_frames - 1) for i in range(math.ceil(video.seconds))]
        n_tenths = int(video.seconds / 0.1)
        tenths = np.linspace(0, n_tenths - 1, MOST_FRAMES, dtype=int).tolist()
        return [min(int(round(i * 0.1, 1) * video.rate), video.n_frames - 1) for i in tenths]

    def piece(self, pixels: Pixels) -> ImagePiece:
        grid = pixels.shape[0] // self.patch_size, pixels.shape[1] // self.patch_size
        inputs = {"patches": patches(pixels, self.patch_size, self.mean, self.std), "buckets": self.buckets(grid)}
        if self.merge == 2:
            return ImagePiece({**inputs, **corners(grid, 2)})
        y, x = np.indices(grid, np.int32).reshape(2, -1) // 2
        window = (y * (grid[1] // 2) + x).astype(np.int32)
        mask = window_mask(window, self.n_rows)
        squares = corners((grid[0] // 2, grid[1] // 2), 2)
        first = corners(grid, 2)["merged.0"]  # a patch of each square
        last = {f"last.{i}": first[squares[f"merged.{i}"]] for i in range(4)}
        return ImagePiece({**inputs, **corners(grid, 2), **last, "windows": mask, "window_of": window})

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.patch_embeddings(g) + self.read_positions(g))
        x = self.norm(g, x, "v.post_ln")
        if self.merge == 2:
            x = merged(g, x, 2, self.n_rows)
        else:
            size = g.size("n_last", self.n_rows // 16)
            parts = [g.get_rows(x, g.input(f"last.{i}", (size,), "i32")) for i in range(4)]
            x = functools.reduce(g.concat, parts)
        x = blocks.layer_norm(g, x, "mm.input_norm", EPSILON)
        return self.perceptron(g, x, "mm.up", "mm.down")

    def following(self, g: GraphBuilder, x: Tensor, i: int) -> Tensor:
        return self._merged(g, x) if self.merge == 4 and i == self.merges_after else x

    def _merged(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return for each patch the row of its square, in which patches have attended to each other."""
        name, n = "v.vit_merger.", self.n_embd
        y = self.norm(g, x, f"{name}ln1")
        heads = [
            blocks.linear(g, y, f"{name}attn_{part}", n).reshape(N_TOKENS, self.n_head, self.head_dim) for part in "qkv"
        ]
        mask = g.input("windows", (N_TOKENS, mask_width(self.n_rows)))
        y = g.attention(*heads, scale=self.score_scale, causal=False, cache=False, mask=mask)
        x = x + blocks.linear(g, y.reshape(N_TOKENS, n), f"{name}attn_out", n)
        parts = gathered(g, x, 2, self.n_rows)
        mean = functools.reduce(Tensor.__add__, parts) * 0.25
        y = self.norm(g, functools.reduce(g.concat, parts), f"{name}ds_ln")
        y = g.gelu(blocks.linear(g, y, f"{name}ds_ffn_up"))
        y = blocks.linear(g, y, f"{name}ds_ffn_down", n) + mean
        return g.get_rows(y, g.input("window_of", (N_TOKENS,), "i32"))


def sines(y: NDArray[np.int32], x: NDArray[np.int32], width: int) -> NDArray[np.float32]:
    """Return ``[n, width]``: sines and cosines of columns, then of rows, by ``width / 4`` frequencies each."""
    n = width // 4
    freqs = 10000.0 ** (-np.arange(n) / n)
    angles: Sequence[NDArray[np.float64]] = [where[:, None] * freqs for where in (x, y)]
    return np.concatenate([f(angle) for angle in angles for f in (np.sin, np.cos)], 1).astype(np.float32)
