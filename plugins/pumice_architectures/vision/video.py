"""Frames of videos: which of them a model sees, and in which size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pumice.plugin.unstable import VideoForm
from pumice_architectures.vision.pixels import Pixels, check_sides

MOST_PIXELS = 26_000_000  # of all frames together, so that a last pair may be completed within the bound of a video
T = TypeVar("T")


def spread(n_frames: int, n: int, shift: float = 0.0) -> list[int]:
    """Return the frame ``shift`` parts into each of ``n`` equal parts of a video.

    Their places are rounded to float32 before they are truncated, as torch does.
    """
    step = n_frames / n
    places = np.float32((np.arange(n) + shift) * step).astype(int)
    return [min(int(place), n_frames - 1) for place in places]


def even(n_frames: int, n: int) -> list[int]:
    """Return ``n`` frames from the first to the last one, at equal distances, rounded half to even."""
    return [int(i) for i in np.linspace(0, n_frames - 1, n).round()]


def fit_frames(n: int, height: int, width: int, factor: int, least: int, most: int) -> tuple[int, int]:
    """Return the nearest height and width that ``factor`` divides, with ``least`` to ``most`` pixels in ``n`` frames.

    The smart resizing of GLM-4.1V (arXiv:2507.01006) and Qwen3-VL, which count frames in pairs.
    """
    check_sides(height, width)
    if min(height, width) < factor:
        scale = max(factor / height, factor / width)
        height, width = int(height * scale), int(width * scale)
    rows, columns = round(height / factor), round(width / factor)
    n_paired = max(round(n / 2) * 2, 2)
    if n_paired * rows * columns * factor**2 > most:
        scale = math.sqrt(n * height * width / most)
        rows, columns = (max(1, math.floor(side / scale / factor)) for side in (height, width))
    elif n_paired * rows * columns * factor**2 < least:
        scale = math.sqrt(least / (n * height * width))
        rows, columns = (math.ceil(side * scale / factor) for side in (height, width))
    return rows * factor, columns * factor


def pairs(frames: NDArray[np.uint8]) -> Iterator[tuple[Pixels, Pixels]]:
    """Yield frames two by two; the last one is repeated if it has no second one."""
    for i in range(0, len(frames), 2):
        yield frames[i], frames[min(i + 1, len(frames) - 1)]


def pair_times(video: VideoForm, chosen: list[int]) -> list[float]:
    """Return the mean time of the frames of each pair in seconds."""
    times = [i / video.rate for i in (*chosen, *chosen[-1:])]
    return [(times[i] + times[i + 1]) / 2 for i in range(0, len(chosen), 2)]


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds."""
    return f"{int(seconds // 60):02d}:{int(seconds % 60):02d}"
