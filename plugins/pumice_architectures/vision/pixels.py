"""Pixels of images: resizing as Pillow does, which is the reference of transformers' processors, and patches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import MediaError, ModelError
from pumice.plugin.unstable import install_command

Pixels = NDArray[np.uint8]  # [height, width, 3]
MOST_RATIO = 200  # of the longer side to the shorter one
MOST_SIDE = 8192  # pixels a side of a square that an encoder sees; published models have up to 1536


def check_ratio(pixels: Pixels) -> None:
    """Raise MediaError for an image so thin that one side would vanish when it is resized."""
    check_sides(*pixels.shape[:2])


def check_sides(height: int, width: int) -> None:
    """Raise MediaError as ``check_ratio``, for an image or a frame of this size."""
    if max(height, width) > MOST_RATIO * min(height, width):
        problem = f"{width} x {height} pixels are too thin; one side may be {MOST_RATIO} times the other"
        raise MediaError("image", problem)


def resize(pixels: Pixels, width: int, height: int, filter: str) -> Pixels:
    """Return an image in another size, by one of Pillow's filters: ``lanczos``, ``bicubic`` or ``bilinear``.

    Raises ModelError for an encoder whose keys ask for more pixels than ``MOST_SIDE ** 2``.
    """
    if width * height > MOST_SIDE**2:
        raise ModelError(f"the encoder asks for {width} x {height} pixels; at most {MOST_SIDE**2} are supported")
    if pixels.shape[:2] == (height, width):
        return pixels
    try:
        from PIL import Image
    except ImportError:
        raise ModelError(f"images need Pillow; install it with: {install_command('media')}") from None
    chosen = {"lanczos": 1, "bilinear": 2, "bicubic": 3}[filter]
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling(chosen)))


def normalized(pixels: Pixels, mean: Sequence[float], std: Sequence[float]) -> NDArray[np.float32]:
    """Return ``(pixels / 255 - mean) / std`` by channel: float32 ``[height, width, 3]``."""
    shift, scale = np.array(mean, np.float32), np.array(std, np.float32)
    scaled: NDArray[np.float32] = (pixels.astype(np.float32) / np.float32(255) - shift) / scale
    return scaled


def patches(pixels: Pixels, size: int, mean: Sequence[float], std: Sequence[float]) -> NDArray[np.float32]:
    """Return normalized patches ``[rows * columns, 3 * size * size]`` of an image, row by row, channels first."""
    height, width = pixels.shape[0] // size, pixels.shape[1] // size
    cells = pixels[: height * size, : width * size].reshape(height, size, width, size, 3)
    rows = np.empty((height, width, 3, size, size), np.float32)
    shift, scale = (np.array(values, np.float32)[:, None, None] for values in (mean, std))
    for row, cell in zip(rows, cells, strict=True):  # a row of patches stays in the processor's cache
        row[...] = cell.transpose(1, 3, 0, 2)
        row /= np.float32(255)
        row -= shift
        row /= scale
    return rows.reshape(height * width, -1)


def tiles(pixels: Pixels, size: int) -> list[Pixels]:
    """Return the squares of ``size`` pixels a side that make up an image, row by row."""
    n_rows, n_columns = pixels.shape[0] // size, pixels.shape[1] // size
    cells = pixels.reshape(n_rows, size, n_columns, size, 3).swapaxes(1, 2)
    return list(cells.reshape(-1, size, size, 3))


def tile_grid(height: int, width: int, size: int, fewest: int, most: int) -> tuple[int, int]:
    """Return columns and rows of ``fewest`` to ``most`` tiles with the ratio nearest to an image's.

    Of equally near ones a later, larger grid is taken if the image has more than half of its pixels. ``size`` is the
    pixels a side of a tile.
    """
    numbers = range(1, most + 1)
    grids = [(c, r) for c in numbers for r in numbers if fewest <= c * r <= most]
    best, nearest = (1, 1), float("inf")
    for columns, rows in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        distance = abs(width / height - columns / rows)
        fills = width * height > 0.5 * size**2 * columns * rows
        if distance < nearest or (distance == nearest and fills):
            best, nearest = (columns, rows), distance
    return best


def fit_pixels(height: int, width: int, factor: int, least: int, most: int, fewest: int = 0) -> tuple[int, int]:
    """Return the nearest height and width that ``factor`` divides, with ``least`` to ``most`` pixels.

    The smart resizing of Qwen 2 VL (Wang et al. 2024, arXiv:2409.12191), which rounds half to even. ``fewest`` is what
    a rounded side has at least, in multiples of ``factor``, before pixels are counted.
    """
    rows, columns = (max(round(side / factor), fewest) for side in (height, width))
    if rows * columns * factor**2 > most:
        scale = math.sqrt(height * width / most)
        rows, columns = (max(1, math.floor(side / scale / factor)) for side in (height, width))
    elif rows * columns * factor**2 < least:
        scale = math.sqrt(least / (height * width))
        rows, columns = (math.ceil(side * scale / factor) for side in (height, width))
    while rows * columns * factor**2 > most:  # there may be no such size of this ratio
        rows, columns = (rows - 1, columns) if rows > columns else (rows, columns - 1)
    return rows * factor, columns * factor
