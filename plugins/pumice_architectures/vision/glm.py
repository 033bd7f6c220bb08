"""GLM-4.1V to 4.6V (Zhipu AI 2025, arXiv:2507.01006) and GLM-OCR: a convolution over squares, then a gated block."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import Frames, ImagePiece, JoinedPieces, VideoForm
from pumice_architectures.vision.any_size import Inputs
from pumice_architectures.vision.interpolation import table_inputs, table_positions
from pumice_architectures.vision.pixels import Pixels, resize
from pumice_architectures.vision.qwen import FRAMES_A_SECOND, TimedPairs
from pumice_architectures.vision.video import pairs
from pumice_architectures.vision.vit import Grid, folded

UNLIMITED = 3.4e38
MOST_SECONDS = 300  # of a video of which all is seen


class GLM4V(TimedPairs):
    """Rotary positions, and in larger models a table of learned ones, too."""

    least_rows, usual_rows, most_rows = 8, 4096, 7500
    around = ("<|begin_of_image|>", "<|end_of_image|>")
    video_pixels = (112**2, 28**2 * 2 * 30000)

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.side = self.table_side(self.patch_size)

    def sampled(self, video: VideoForm) -> list[int]:
        """Return two frames a second; of longer videos 600 at equal distances. The number of frames is even."""
        last = video.n_frames - 1
        if video.seconds <= MOST_SECONDS:
            n = max(math.floor(video.seconds * FRAMES_A_SECOND), 1)
            chosen = [min(last, math.ceil(i * video.rate / FRAMES_A_SECOND)) for i in range(n)]
        elif video.n_frames <= MOST_SECONDS * FRAMES_A_SECOND:
            chosen = list(range(video.n_frames))
        else:
            times = np.linspace(0, video.seconds, MOST_SECONDS * FRAMES_A_SECOND)
            chosen = [min(last, math.ceil(time * video.rate)) for time in times]
        chosen = list(dict.fromkeys(chosen))
        return chosen + chosen[-1:] * (len(chosen) % 2)

    def prepare_video(self, video: VideoForm, frames: Frames) -> Iterable[str | ImagePiece | JoinedPieces]:
        yield "<|begin_of_video|>"
        for first, pair in zip(self.sampled(video)[::2], pairs(frames), strict=True):
            yield from (self.around[0], self.piece_of_pair(*pair), f"{self.around[1]}{int(first / video.rate)}")
        yield "<|end_of_video|>"

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        if min(height, width) < self.factor:
            scale = max(self.factor / height, self.factor / width)
            height, width = int(height * scale), int(width * scale)
        return super().fitted(height, width)

    def more_inputs(self, grid: Grid) -> Inputs:
        return table_inputs(self.side, grid, "cubic") if self._has_table else {}

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.patch_embeddings(g)
        if g.find_weight("v.norm_embd.weight") is not None:
            x = self.norm(g, x, "v.norm_embd")
        table = g.find_weight("v.position_embd.weight", (self.side**2, self.n_embd))
        self._has_table = table is not None
        if table is not None:
            x = x + table_positions(g, table, "cubic")
        x = self.norm(g, self.blocks(g, x), "v.post_ln")
        x = folded(g, x, "mm.patch_merger", self.merge, self.n_rows, self.width)
        x = g.gelu_erf(blocks.layer_norm(g, blocks.linear(g, x, "mm.model.fc", self.width), "mm.post_norm", 1e-5))
        gate, up = (blocks.linear(g, x, f"mm.{name}") for name in ("gate", "up"))
        return blocks.linear(g, self.gated(g, gate, up), "mm.down", self.width)


class GLM5V(GLM4V):
    """GLM-5.3-Flash: images are put on a canvas, black at the right and the bottom, and gates are limited."""

    least_rows, usual_rows, most_rows = 16, 7500, 7500
    sees_videos = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.limit = hparams.number("swiglu_clamp")

    def gated(self, g: GraphBuilder, gate: Tensor, up: Tensor) -> Tensor:
        return super().gated(g, g.clamp(gate, -UNLIMITED, self.limit), g.clamp(up, -self.limit, self.limit))

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        """Return the canvas: rounded sides; a small image is scaled up, a large one to the highest that fits."""
        sides = self._whole(height), self._whole(width)
        if math.prod(sides) < self.least:
            scale = math.sqrt(self.least / (height * width))
            sides = self._whole(max(1, math.ceil(height * scale))), self._whole(max(1, math.ceil(width * scale)))
        if math.prod(sides) <= self.most:
            return sides
        sides, low, high = (self.factor, self.factor), 1, height
        while low <= high:
            middle = (low + high) // 2
            tried = self._whole(middle), self._whole(max(1, width * middle // height))
            if math.prod(tried) <= self.most:
                sides, low = tried, middle + 1
            else:
                high = middle - 1
        return sides

    def _whole(self, side: int) -> int:
        return math.ceil(side / self.factor) * self.factor

    def resized(self, pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        canvas = self.fitted(height, width)
        scale = min(canvas[0] / height, canvas[1] / width)
        if height * width >= self.least:
            scale = min(1.0, scale)
        high, wide = (max(1, min(most, math.floor(n * scale))) for n, most in zip((height, width), canvas, strict=True))
        return np.pad(resize(pixels, wide, high, self.filter), ((0, canvas[0] - high), (0, canvas[1] - wide), (0, 0)))
