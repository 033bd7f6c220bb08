"""Pixels of images: resizing as Pillow does, which is the reference of transformers' processors, and patches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import ModelError, RequestError

Pixels = NDArray[np.uint8]  # [height, width, 3]
MOST_RATIO = 200  # of the longer side to the shorter one


def check_ratio(pixels: Pixels) -> None:
    """Raise RequestError for an image so thin that one side would vanish when it is resized."""
    height, width = pixels.shape[:2]
    if max(height, width) > MOST_RATIO * min(height, width):
        problem = f"an image of {width} x {height} pixels is too thin"
        raise RequestError(f"{problem}; one side may be {MOST_RATIO} times the other")


def resize(pixels: Pixels, width: int, height: int, filter: str) -> Pixels:
    """Return an image in another size, by one of Pillow's filters: ``lanczos``, ``bicubic`` or ``bilinear``."""
    try:
        from PIL import Image
    except ImportError:
        raise ModelError("images need Pillow; install it with: pip install 'pumice[media]'") from None
    if pixels.shape[:2] == (height, width):
        return pixels
    chosen = {"lanczos": 1, "bilinear": 2, "bicubic": 3}[filter]
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling(chosen)))


def patches(pixels: Pixels, size: int, mean: Sequence[float], std: Sequence[float]) -> NDArray[np.float32]:
    """Return normalized patches ``[rows * columns, 3 * size * size]`` of an image, row by row, channels first."""
    scaled = (pixels.astype(np.float32) / np.float32(255) - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)
    height, width = pixels.shape[0] // size, pixels.shape[1] // size
    cells = scaled[: height * size, : width * size].reshape(height, size, width, size, 3)
    return np.ascontiguousarray(cells.transpose(0, 2, 4, 1, 3).reshape(height * width, -1))
