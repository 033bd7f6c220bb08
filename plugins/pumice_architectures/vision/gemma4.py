"""Gemma 4 (Google 2026): an image scaled to a budget of tokens, and the mean of squares of patches."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator

import numpy as np

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, MediaError, ModelError, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import Frames, ImageEncoder, ImagePiece, VideoForm, VideoPlan
from pumice_architectures.vision.any_size import AnySize, Inputs
from pumice_architectures.vision.pixels import Pixels, check_ratio, patches, resize
from pumice_architectures.vision.video import clock
from pumice_architectures.vision.vit import Grid, falling, gathered, limited, places

AROUND = ("<|image>", "<image|>")
USUAL_ROWS, MOST_ROWS = 280, 1120  # of an image
FREQ_BASE = 100.0
VIDEO_FRAMES, VIDEO_ROWS = 32, 70  # frames of a video, and rows of each
UNBOUNDED = 3e38  # where a map does not limit its values


def filled(height: int, width: int, factor: int, most_rows: int) -> tuple[int, int]:
    """Return the largest height and width of an image's ratio, rounded down to ``factor``, with ``most_rows`` squares.

    Raises MediaError for an image that is too thin.
    """
    scale = math.sqrt(most_rows * factor**2 / (height * width))
    rows, columns = math.floor(scale * height / factor), math.floor(scale * width / factor)
    if not rows:
        rows, columns = 1, min(width // height, most_rows)
    elif not columns:
        rows, columns = min(height // width, most_rows), 1
    if not rows * columns:
        raise MediaError("image", f"{width} x {height} pixels do not fit {most_rows} tokens")
    return rows * factor, columns * factor


def planned(video: VideoForm, factor: int, most_rows: int) -> VideoPlan:
    """Return the frames of a video, each of which is a small image."""
    return VideoPlan(seen(video), [filled(video.height, video.width, factor, min(VIDEO_ROWS, most_rows))])


def seen(video: VideoForm) -> list[int]:
    """Return which frames of a video are seen: the first of each of 32 equal parts."""
    n = min(VIDEO_FRAMES, video.n_frames)
    return [i * video.n_frames // n for i in range(n)]


def around_frames(video: VideoForm, pieces: Iterable[ImagePiece]) -> Iterator[str | ImagePiece]:
    """Yield the frames of a video, each behind its time."""
    for i, (number, piece) in enumerate(zip(seen(video), pieces, strict=True)):
        yield from (f"{' ' if i else ''}{clock(number / video.rate)} {AROUND[0]}", piece, AROUND[1])


class Gemma4(AnySize):
    """A vision transformer with norms around its blocks, two tables of positions, and maps with limited values."""

    merge_key = "projector.scale_factor"
    usual_merge = 3
    least_rows, usual_rows, most_rows = 1, USUAL_ROWS, MOST_ROWS
    around = AROUND
    has_axes = False
    sees_videos = True
    known_activation = "gelu"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.score_scale = 1.0
        self.side = self.n_rows // self.merge  # patches along an image that is one square wide
        # the model computes 2x - 1 of its pixels
        self.mean = [mean + std / 2 for mean, std in zip(self.mean, self.std, strict=True)]
        self.std = [std / 2 for std in self.std]

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        return filled(height, width, self.factor, self.most // self.factor**2)

    def plan_video(self, video: VideoForm) -> VideoPlan:
        return planned(video, self.factor, self.most // self.factor**2)

    def prepare_video(self, video: VideoForm, frames: Frames) -> Iterable[str | ImagePiece]:
        return around_frames(video, map(self.piece, frames))

    def more_inputs(self, grid: Grid) -> Inputs:
        row, column = places(grid).T
        return {"row": np.ascontiguousarray(row), "column": np.ascontiguousarray(column)}

    def rotated(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return ``x`` with the first half of each head turned by column, the second by row."""
        where, half = g.input("places", (N_TOKENS, 2), "i32"), self.head_dim // 2
        freqs = falling(half // 2, FREQ_BASE)
        first, second = (
            g.rope(g.slice(x, i * half, (i + 1) * half), where, freqs=freqs, neox=True, axes=(1 - i,) * len(freqs))
            for i in range(2)
        )
        return g.concat(first, second)

    def values(self, g: GraphBuilder, v: Tensor) -> Tensor:
        return g.rms_norm(v, None, self.eps)

    def linear(self, g: GraphBuilder, x: Tensor, name: str, n_out: int) -> Tensor:
        return clamped_linear(g, x, name, n_out)

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.patch_embeddings(g) + axis_positions(g, self.n_embd, self.side))
        x = functools.reduce(Tensor.__add__, gathered(g, x, self.merge, self.n_rows))
        x = x * (self.merge**-2 * self.n_embd**0.5)
        shift = g.find_weight("v.std_bias", (self.n_embd,))
        if shift is not None:
            x = (x + g.derived("v.std_bias.negative", (self.n_embd,), lambda w: -w, shift)) * g.weight("v.std_scale")
        return blocks.linear(g, g.rms_norm(x, None, self.eps), "mm.input_projection", self.width)


def clamped_linear(g: GraphBuilder, x: Tensor, name: str, n_out: int) -> Tensor:
    """Return a linear map of values between bounds, to values between others, if the file has any."""
    return _limited(g, blocks.linear(g, _limited(g, x, f"{name}.input"), name, n_out), f"{name}.output")


def _limited(g: GraphBuilder, x: Tensor, name: str) -> Tensor:
    """Return ``x`` between the bounds that the file has for it."""
    bounds = [g.find_weight(f"{name}_{end}", (1,)) for end in ("min", "max")]
    if None in bounds:
        return x
    low, high = (float(weight.dequantize()[0]) for weight in bounds if weight is not None)
    if not low <= high:
        raise ModelError(f"tensors {name}_min and {name}_max are {low} and {high}")
    if low < -UNBOUNDED and high > UNBOUNDED:
        return x
    return g.clamp(x, max(low, -UNBOUNDED), min(high, UNBOUNDED))


def axis_positions(g: GraphBuilder, n_embd: int, side: int) -> Tensor:
    """Return the sum of a row for each patch's column and one for its row, of the tables ``[2, n, n_embd]``.

    Raises ModelError if a grid may have more rows or columns, up to ``side``, than the tables.
    """
    stored = g.weight("v.position_embd.weight")
    if len(stored.shape) != 3 or stored.shape[0] != 2 or stored.shape[2] != n_embd:
        raise ModelError(f"tensor v.position_embd.weight has shape {list(stored.shape)}, expected [2, n, {n_embd}]")
    if int(stored.shape[1]) < side:
        raise ModelError(f"tensor v.position_embd.weight has {stored.shape[1]} places, but an image may have {side}")
    shape = (int(stored.shape[1]), n_embd)
    of_column, of_row = (
        g.derived(f"v.position_embd.{i}", shape, functools.partial(lambda i, w: w[i], i), stored) for i in range(2)
    )
    columns, rows = (g.input(name, (N_TOKENS,), "i32") for name in ("column", "row"))
    return g.embedding(of_column, columns) + g.embedding(of_row, rows)


class Gemma4Unified(ImageEncoder):
    """Gemma 4 without a vision transformer: patches of ``merge * merge`` times the size, with positions."""

    bounds_tokens = True
    sees_videos = True
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_embd = hparams.positive("embedding_length")
        self.eps = hparams.number("attention.layer_norm_epsilon")
        self.factor = hparams.positive("patch_size") * hparams.get_int("projector.scale_factor", 3)
        most = min(hparams.get_int("image_max_pixels", USUAL_ROWS * self.factor**2), MOST_ROWS * self.factor**2)
        _, most = limited(hparams, 1, most, self.factor, MOST_ROWS)
        self.n_rows = self.side = most // self.factor**2
        if not 1 <= self.factor <= 512 or self.n_rows < 1:
            raise hparams.wrong("patch_size", f"makes squares of {self.factor} pixels, for {most} pixels of an image")

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        height, width = filled(pixels.shape[0], pixels.shape[1], self.factor, self.n_rows)
        return [AROUND[0], self._piece(resize(pixels, width, height, "bicubic")), AROUND[1]]

    def plan_video(self, video: VideoForm) -> VideoPlan:
        return planned(video, self.factor, self.n_rows)

    def prepare_video(self, video: VideoForm, frames: Frames) -> Iterable[str | ImagePiece]:
        return around_frames(video, map(self._piece, frames))

    def _piece(self, pixels: Pixels) -> ImagePiece:
        rows = patches(pixels, self.factor, self.mean, self.std)
        row, column = places((pixels.shape[0] // self.factor, pixels.shape[1] // self.factor)).T
        return ImagePiece({"patches": rows, "row": np.ascontiguousarray(row), "column": np.ascontiguousarray(column)})

    def build(self, g: GraphBuilder) -> Tensor:
        x = blocks.layer_norm(g, g.input("patches", (N_TOKENS, 3 * self.factor**2)), "v.patch_norm.1", 1e-5)
        x = blocks.layer_norm(g, blocks.linear(g, x, "v.patch_embd", self.n_embd), "v.patch_norm.2", 1e-5)
        x = blocks.layer_norm(g, x + axis_positions(g, self.n_embd, self.side), "v.patch_norm.3", 1e-5)
        return blocks.linear(g, g.rms_norm(x, None, self.eps), "mm.input_projection", self.width)
