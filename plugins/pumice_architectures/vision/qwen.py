"""Qwen 2 VL (Wang et al. 2024, arXiv:2409.12191), 2.5 VL (Bai et al. 2025, arXiv:2502.13923) and 3 VL.

Images keep their ratio: their sides are multiples of a square of patches, which becomes one row. Rotary positions turn
the first half of a head's pairs by the patch's row and the other half by its column.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import Frames, ImagePiece, JoinedPieces, VideoForm, VideoPlan
from pumice_architectures.vision.any_size import AnySize, Inputs
from pumice_architectures.vision.interpolation import table_inputs, table_positions
from pumice_architectures.vision.pixels import check_sides, fit_pixels
from pumice_architectures.vision.video import MOST_PIXELS, even, fit_frames, pair_times, pairs, spread
from pumice_architectures.vision.vit import Grid, Rotation, merged
from pumice_architectures.vision.windows import Windowed

FRAMES_A_SECOND, LEAST_FRAMES, MOST_FRAMES = 2, 4, 768  # of a video that the model sees
TIMES_A_SECOND = 2  # places in time of Qwen2.5-VL, unless the file says it


class Qwen2VL(AnySize):
    """Two frames a second of a video, in pairs, each of which is encoded alone. Pairs are places in time."""

    sees_videos = True
    video_pixels = (128 * 28**2, 768 * 28**2)  # least and most of a frame, unless the file says it

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.rotation = Rotation.halves(self.head_dim)
        self.video_least, self.video_most = (
            hparams.get_int(f"video_{key}_pixels", usual)
            for key, usual in zip(("min", "max"), self.video_pixels, strict=True)
        )
        if self.sees_videos and not 0 < self.video_least <= self.video_most:
            raise hparams.wrong("video_min_pixels", f"is {self.video_least}, expected 1 to {self.video_most}")

    def plan_video(self, video: VideoForm) -> VideoPlan:
        frames = self.sampled(video)
        return VideoPlan(frames, [self.frame_size(len(frames), video.height, video.width)])

    def sampled(self, video: VideoForm) -> list[int]:
        """Return which frames of a video are seen."""
        most = min(MOST_FRAMES, video.n_frames) // 2 * 2
        n = int(min(max(video.seconds * FRAMES_A_SECOND, LEAST_FRAMES), most)) // 2 * 2
        return spread(video.n_frames, n) if n else [0]

    def frame_size(self, n: int, height: int, width: int) -> tuple[int, int]:
        """Return height and width of ``n`` frames."""
        check_sides(height, width)
        most = min(self.video_most, self.most, MOST_PIXELS // n)
        return fit_pixels(height, width, self.factor, min(self.video_least, most), most)

    def prepare_video(self, video: VideoForm, frames: Frames) -> Iterable[str | ImagePiece | JoinedPieces]:
        before, after = self.around
        n, (height, width) = -(-len(frames) // 2), frames.shape[1:3]
        grid = height // self.factor, width // self.factor
        order = np.arange(n * grid[0] * grid[1], dtype=np.int32)
        seconds = 2 * video.n_frames / video.rate / len(frames)
        times = tuple(int(i * self.time_step(seconds)) for i in range(n))
        return [before, JoinedPieces((self.piece_of_pair(*pair) for pair in pairs(frames)), order, grid, times), after]

    def time_step(self, seconds: float) -> float:
        """Return the distance of pairs of frames in time, which are ``seconds`` apart."""
        return 1.0

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.patch_embeddings(g))
        x = merged(g, self.norm(g, x, "v.post_ln"), self.merge, self.n_rows)
        return self.perceptron(g, x, "mm.0", "mm.2")


class Qwen25VL(Windowed, Qwen2VL):
    """Windows of a size in pixels."""

    def time_step(self, seconds: float) -> float:
        return seconds * self.times_a_second

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.pattern = hparams.positive("n_wa_pattern")
        self.times_a_second = hparams.get_int("tokens_per_second", TIMES_A_SECOND)
        if not 0 < self.times_a_second <= 1000:
            raise hparams.wrong("tokens_per_second", f"is {self.times_a_second}, expected 1 to 1000")
        n_merged = hparams.get_int("window_size", 112) // self.factor
        if n_merged < 1:
            raise hparams.wrong("window_size", f"is less than {self.factor} pixels")
        self.set_window(n_merged * self.merge)

    def frame_size(self, n: int, height: int, width: int) -> tuple[int, int]:
        size = super().frame_size(n, height, width)
        return self.bounded(*size) if self.has_too_many_rows(*size) else size

    def is_whole(self, i: int) -> bool:
        return (i + 1) % self.pattern == 0


class Exaone45(Qwen25VL):
    """EXAONE 4.5 (LG AI Research 2026): keys and values shared by heads; rows follow each other like tokens."""

    around = ("<vision>", "</vision>")
    has_axes = False
    sees_videos = False


class TimedPairs(Qwen2VL):
    """Pairs of frames of a video with texts that tell their times; limits of pixels are those of all frames."""

    def sampled(self, video: VideoForm) -> list[int]:
        n = min(max(int(video.seconds * FRAMES_A_SECOND), LEAST_FRAMES), MOST_FRAMES, video.n_frames)
        return even(video.n_frames, n)

    def frame_size(self, n: int, height: int, width: int) -> tuple[int, int]:
        most = min(self.video_most, n * self.most, MOST_PIXELS)
        return fit_frames(n, height, width, self.factor, min(self.video_least, most), most)

    def prepare_video(self, video: VideoForm, frames: Frames) -> Iterable[str | ImagePiece | JoinedPieces]:
        for seconds, pair in zip(pair_times(video, self.sampled(video)), pairs(frames), strict=True):
            yield from (f"<{seconds:.1f} seconds>", self.around[0], self.piece_of_pair(*pair), self.around[1])


class Qwen3VL(TimedPairs):
    """Learned positions of a square grid, interpolated, besides the rotary ones; rows for the model's first layers."""

    least_rows = 64
    video_pixels = (4096, 25165824)

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        flags = hparams.per_layer("is_deepstack_layers", self.n_layer, False)
        self.deep_layers = [i for i, flag in enumerate(flags) if flag]
        self.width *= 1 + len(self.deep_layers)
        self.side = self.table_side(self.patch_size)
        self._after: list[Tensor] = []

    def more_inputs(self, grid: Grid) -> Inputs:
        return table_inputs(self.side, grid, "aligned")

    def positions(self, g: GraphBuilder) -> Tensor:
        return table_positions(g, g.weight("v.position_embd.weight", (self.side**2, self.n_embd)), "aligned")

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


class Ling3VL(Qwen3VL):
    """Ling 3 VL (Ant Group 2026): a norm of each patch, and a perceptron over squares of them."""

    sees_videos = False

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.patch_embeddings(g) + self.positions(g))
        x = merged(g, self.norm(g, x, "mm.input_norm"), self.merge, self.n_rows)
        return self.perceptron(g, x, "mm.0", "mm.2")
