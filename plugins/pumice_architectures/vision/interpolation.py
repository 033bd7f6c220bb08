"""Tables of learned positions in the size of an image's grid, as PyTorch interpolates them."""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, Tensor, Weight
from pumice_architectures.vision.vit import Grid

Kind = Literal["aligned", "linear", "cubic", "bordered"]
SHARPNESS = -0.75  # of the cubic convolution (Keys 1981, "Cubic Convolution Interpolation"), as PyTorch has it


def n_taps(kind: Kind) -> int:
    """Return the rows of a table that make a position along one axis."""
    return 4 if kind == "cubic" else 2


def taps(n_from: int, n_to: int, kind: Kind) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return rows ``[n_to, taps]`` of ``n_from`` along one axis, and their shares in each of ``n_to`` positions.

    ``aligned``: bilinear, with the first and the last of both in the same place; ``linear`` and ``cubic``: bilinear and
    bicubic, of places that fill the same length. ``bordered``: like ``linear``, among rows of zeros at both ends.
    """
    if kind == "aligned":
        exact = np.linspace(0, n_from - 1, n_to, dtype=np.float32)
    else:
        exact = ((np.arange(n_to) + 0.5) * (n_from / n_to) - 0.5).astype(np.float32)
    if kind == "linear":
        exact = np.maximum(exact, 0)
    low = np.floor(exact).astype(np.int32)
    t = (exact - low)[:, None]
    if kind == "cubic":
        rows, shares = low[:, None] + np.arange(-1, 3), _cubic(np.abs(t - np.arange(-1, 3)))
    else:
        rows, shares = low[:, None] + np.arange(2), np.concatenate([1 - t, t], 1)
    if kind == "bordered":
        shares = np.where((rows < 0) | (rows >= n_from), np.float32(0), shares)
    return np.clip(rows, 0, n_from - 1).astype(np.int32), shares.astype(np.float32)


def _cubic(x: NDArray[np.floating], a: float = SHARPNESS) -> NDArray[np.floating]:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def table_inputs(side: int, grid: Grid, kind: Kind) -> dict[str, NDArray[np.float32] | NDArray[np.int32]]:
    """Return the inputs of ``table_positions`` for a grid of patches and a table of ``side * side`` rows."""
    (rows, of_rows), (columns, of_columns) = (taps(side, n, kind) for n in grid)
    inputs: dict[str, NDArray[np.float32] | NDArray[np.int32]] = {}
    for i in range(n_taps(kind) ** 2):
        down, right = divmod(i, n_taps(kind))
        ids = rows[:, down, None] * side + columns[:, right]
        inputs[f"near.{i}"] = ids.reshape(-1).astype(np.int32)
        inputs[f"weight.{i}"] = np.outer(of_rows[:, down], of_columns[:, right]).reshape(-1, 1).astype(np.float32)
    return inputs


def table_positions(g: GraphBuilder, table: Weight, kind: Kind) -> Tensor:
    """Return the rows ``[t, n_embd]`` of a table in the size of the image's grid."""
    parts = [
        g.embedding(table, g.input(f"near.{i}", (N_TOKENS,), "i32")) * g.input(f"weight.{i}", (N_TOKENS, 1))
        for i in range(n_taps(kind) ** 2)
    ]
    return functools.reduce(Tensor.__add__, parts)


def resampling(n_from: int, n_to: int, cubic: bool = False) -> NDArray[np.float32]:
    """Return float32 ``[n_to, n_from]``: shares of old places in new ones, bilinear or bicubic with antialiasing.

    As PyTorch's ``interpolate`` with ``antialias``: a kernel over old places, or over new ones if these are larger,
    around the place's centre. The cubic one has another sharpness than without antialiasing.
    """
    scale = n_from / n_to
    centres = (np.arange(n_to) + 0.5) * scale
    distances = np.abs(np.arange(n_from) + 0.5 - centres[:, None]) / max(scale, 1.0)
    shares = _cubic(distances, -0.5) if cubic else np.maximum(1.0 - distances, 0.0)
    return (shares / shares.sum(1, keepdims=True)).astype(np.float32)
