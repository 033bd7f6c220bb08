"""Idefics3 and SmolVLM (Laurençon et al. 2024, arXiv:2408.12637; Marafioti et al. 2025, arXiv:2504.05299)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import Frames, ImagePiece, VideoForm, VideoPlan
from pumice_architectures.vision.pixels import Pixels, check_ratio, check_sides, patches, resize, tiles
from pumice_architectures.vision.video import clock
from pumice_architectures.vision.vit import ViT, corners, merged

MOST_SIDE = 4096  # of a resized image
MOST_FRAMES = 64  # of a video
AROUND = "<fake_token_around_image>"


def in_words(n: int) -> str:
    """Return a number from 0 to 99 in English words."""
    ones = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    names = f"{ones} seventeen eighteen nineteen".split()
    tens = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
    return names[n] if n < 20 else tens[n // 10 - 2] + (f"-{names[n % 10]}" if n % 10 else "")


class Idefics3(ViT):
    """SigLIP over square tiles and a small copy of the whole; squares of ``m * m`` patches become one row.

    A frame of a video is a small copy, as in SmolVLM 2.
    """

    sees_videos = True

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.merge = hparams.positive("projector.scale_factor")
        self.longest = hparams.get_int("preproc_image_size", 4 * self.image_size)
        if self.side % self.merge:
            raise hparams.wrong("projector.scale_factor", f"is {self.merge}, for {self.side} patches a side")
        if not self.image_size <= self.longest <= MOST_SIDE:
            raise hparams.wrong("preproc_image_size", f"is {self.longest}, expected {self.image_size} to {MOST_SIDE}")

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        cells, n_columns = self.tiles(pixels)
        parts: list[str | ImagePiece] = []
        for number, tile in enumerate(cells[:-1]):
            row, column = divmod(number, n_columns)
            parts += [f"{AROUND}<row_{row + 1}_col_{column + 1}>", self._inputs(tile)]
            parts += ["\n"] if column == n_columns - 1 else []
        between = "\n" if parts else ""
        return [*parts, f"{between}{AROUND}<global-img>", self._inputs(cells[-1]), AROUND]

    def tiles(self, pixels: Pixels) -> tuple[list[Pixels], int]:
        """Return the tiles of an image row by row, then the whole as one tile, and the number of columns."""
        size = self.image_size
        height, width = self._fitted(pixels.shape[0], pixels.shape[1], self.longest)
        whole = resize(pixels, width, height, "lanczos")
        height, width = self._tiled(height, width)
        whole = resize(whole, width, height, "lanczos")
        n_rows, n_columns = height // size, width // size
        if n_rows * n_columns == 1:
            return [whole], 1
        return [*tiles(whole, size), resize(whole, size, size, "lanczos")], n_columns

    def plan_video(self, video: VideoForm) -> VideoPlan:
        """Return a frame a second; a second at both ends of a long video is left out."""
        check_sides(video.height, video.width)
        start, end = 0, video.n_frames - 1
        if video.seconds - 2 > MOST_FRAMES:
            start, end = int(video.rate), min(int(video.n_frames - video.rate), end)
        n = max(min(round(video.seconds), MOST_FRAMES), 1)
        frames = np.unique(np.linspace(start, end, n, dtype=int) if start < end else np.zeros(1, int))
        whole = self._fitted(video.height, video.width, self.image_size)
        return VideoPlan(frames.tolist(), [whole, (self.image_size, self.image_size)], "lanczos")

    def prepare_video(self, video: VideoForm, frames: Frames) -> Iterable[str | ImagePiece]:
        seconds = int(video.seconds)
        duration = f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        count = f"the following series of {in_words(len(frames))} frames"
        yield f"You are provided {count} from a {duration} [H:MM:SS] video.\n"
        for number, frame in zip(self.plan_video(video).frames, frames, strict=True):
            time = clock(number / video.rate)
            yield from (f"\nFrame from {time}:{AROUND}<global-img>", self._inputs(frame), AROUND)
        yield "\n\n"

    def _fitted(self, height: int, width: int, longest: int) -> tuple[int, int]:
        """Return the size with the longest side scaled to ``longest``, and the other one even."""
        ratio = width / height
        if width >= height:
            other = int(longest / ratio)
            return max(other + other % 2, 1), longest
        other = int(longest * ratio)
        return longest, max(other + other % 2, 1)

    def _tiled(self, height: int, width: int) -> tuple[int, int]:
        """Return the size in whole tiles: the longer side rounded up, the other one by the ratio, rounded up."""
        size, ratio = self.image_size, width / height
        if width >= height:
            width = math.ceil(width / size) * size
            return math.ceil(int(width / ratio) / size) * size, width
        height = math.ceil(height / size) * size
        return height, math.ceil(int(height * ratio) / size) * size

    def _inputs(self, tile: Pixels) -> ImagePiece:
        rows = patches(tile, self.patch_size, self.mean, self.std)
        return ImagePiece({"patches": rows, **corners((self.side, self.side), self.merge)})

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.patch_embeddings(g) + self.positions(g))
        x = blocks.layer_norm(g, x, "v.post_ln", self.eps)
        return blocks.linear(g, merged(g, x, self.merge, self.n_rows), "mm.model.fc", self.width)
