"""Windows of patches without masks: patches are in the order of windows, each of which is a chunk of attention."""

from __future__ import annotations

import math

import numpy as np

from pumice.plugin import N_TOKENS, GraphBuilder, Tensor
from pumice.plugin.unstable import HIDDEN
from pumice_architectures.vision.any_size import AnySize, Inputs
from pumice_architectures.vision.pixels import fit_pixels
from pumice_architectures.vision.vit import Grid

UNIT = 8  # values of a head
MOST_SIDE = 256  # patches of a window
RATIO = 16  # of an image's sides, up to which all its windows fit without scaling it down


def padded(grid: Grid, window: int) -> Grid:
    """Return rows and columns of whole windows of ``window * window`` patches that cover a grid."""
    return math.ceil(grid[0] / window) * window, math.ceil(grid[1] / window) * window


def most_padded(n: int, window: int) -> int:
    """Return the rows for ``n`` patches in whole windows, in images whose sides have a ratio of up to ``RATIO``."""
    sides = math.sqrt(n * RATIO) + math.sqrt(n / RATIO)
    return n + math.ceil((window - 1) * (sides + window))


def by_windows(inputs: Inputs, grid: Grid, window: int) -> Inputs:
    """Return the inputs of a grid of patches, with the patches of one window after the other.

    Windows over the edge have empty rows, which the input ``hidden`` names. Inputs ``merged.i`` name patches; others
    have a row for each.
    """
    n, (height, width) = grid[0] * grid[1], padded(grid, window)
    cells = np.arange(height * width).reshape(height // window, window, -1, window).swapaxes(1, 2).reshape(-1)
    row, column = np.divmod(cells, width)
    inside = (row < grid[0]) & (column < grid[1])
    place = np.where(inside, row * grid[1] + column, 0)
    order = np.zeros(n, np.int32)  # the row of each patch
    order[place[inside]] = np.flatnonzero(inside)
    hidden = np.zeros((len(cells), 1, UNIT), np.float32)
    hidden[~inside, 0, 0] = HIDDEN
    moved = {name: order[x] if name.startswith("merged.") else x[place] for name, x in inputs.items()}
    return {**moved, "hidden": hidden}


def attend(g: GraphBuilder, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int) -> Tensor:
    """Return attention of patches by windows, each to its own one; 0: to the whole image."""
    query = g.concat(q, g.scale(g.slice(q, 0, UNIT), 0.0, 1.0))
    key = g.concat(k, g.input("hidden", (N_TOKENS, 1, UNIT)))
    return g.attention(query, key, v, scale=scale, causal=False, cache=False, chunk=window**2)


class Windowed(AnySize):
    """Images of any ratio, whose patches follow each other by window; most blocks attend within windows only.

    Attributes:
        window: patches a side of a window.
    """

    window: int

    def set_window(self, window: int) -> None:
        """Set the patches a side of a window, and the rows that images need for whole windows.

        Raises ModelError for more than ``MOST_SIDE``.
        """
        if window > MOST_SIDE:
            raise self.hparams.wrong("window_size", f"is {window} patches a side, expected at most {MOST_SIDE}")
        self.window = window
        self.n_rows = most_padded(self.n_rows, window)

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        size = super().fitted(height, width)
        return self.bounded(*size) if self.has_too_many_rows(*size) else size

    def has_too_many_rows(self, height: int, width: int) -> bool:
        """Return True for a size whose windows do not fit, as those of a very thin image."""
        return math.prod(padded((height // self.patch_size, width // self.patch_size), self.window)) > self.n_rows

    def bounded(self, height: int, width: int) -> tuple[int, int]:
        """Return the largest size of this ratio whose windows fit."""
        while self.has_too_many_rows(height, width):
            most = max(int(height * width * 0.9), self.factor**2)
            height, width = fit_pixels(height, width, self.factor, self.factor**2, most)
        return height, width

    def arranged(self, inputs: Inputs, grid: Grid) -> Inputs:
        return by_windows(inputs, grid, self.window)

    def attend(self, g: GraphBuilder, q: Tensor, k: Tensor, v: Tensor, i: int) -> Tensor:
        return attend(g, q, k, v, self.score_scale, 0 if self.is_whole(i) else self.window)

    def is_whole(self, i: int) -> bool:
        """Return True for a block that attends to the whole image."""
        raise NotImplementedError
