"""HunyuanOCR and Hunyuan-VL (Tencent 2025, arXiv:2511.19575): lines of rows, each with an embedding at its end."""

from __future__ import annotations

import numpy as np

from pumice.plugin import GraphBuilder, HParams, ModelError, Tensor, fixed
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import ImagePiece
from pumice_architectures.vision.any_size import AnySize, Inputs
from pumice_architectures.vision.interpolation import table_inputs, table_positions
from pumice_architectures.vision.pixels import Pixels
from pumice_architectures.vision.vit import Grid, folded

INNER, LINE_END, BEGIN, END = range(4)  # kinds of rows


class HunyuanVL(AnySize):
    """A table of positions, and squares of patches by two convolutions; rows begin and end an image."""

    least_rows, usual_rows, most_rows = 256, 4096, 16384
    around = ("<｜hy_place▁holder▁no▁100｜>", "<｜hy_place▁holder▁no▁101｜>")
    known_activation = "gelu_erf"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.side = self.table_side(self.patch_size)

    def piece(self, pixels: Pixels) -> ImagePiece:
        piece = super().piece(pixels)
        assert piece.grid is not None
        rows, columns = piece.grid
        return ImagePiece(piece.inputs, (rows, columns + 1), n_before=1, n_after=1)

    def more_inputs(self, grid: Grid) -> Inputs:
        rows, columns = grid[0] // self.merge, grid[1] // self.merge
        ids = np.pad(np.arange(rows * columns, dtype=np.int32).reshape(rows, columns), ((0, 0), (0, 1)))
        kinds = np.pad(np.full((rows, columns), INNER, np.int32), ((0, 0), (0, 1)), constant_values=LINE_END)
        return {
            **table_inputs(self.side, grid, "linear"),
            "line_ids": np.pad(ids.reshape(-1), 1),
            "line_kinds": np.array([BEGIN, *kinds.reshape(-1), END], np.int32),
        }

    def build(self, g: GraphBuilder) -> Tensor:
        table = g.weight("v.position_embd.weight", (self.side**2, self.n_embd))
        x = self.blocks(g, self.patch_embeddings(g) + table_positions(g, table, "linear"))
        x = self.norm(g, x, "mm.pre_norm")
        x = g.gelu_erf(folded(g, x, "mm.0", self.merge, self.n_rows, 2 * self.n_embd))
        x = self._lines(g, self._mapped(g, x))
        return self.norm(g, x, "mm.post_norm")

    def _mapped(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return the second convolution, whose kernel is of one place."""
        n_in, n_out = 2 * self.n_embd, 4 * self.n_embd
        stored = g.weight("mm.2.weight")
        if fixed(stored.shape) not in ((n_out, n_in), (n_out, n_in, 1, 1)):
            raise ModelError(f"tensor mm.2.weight has shape {list(stored.shape)}, but the model needs {[n_out, n_in]}")
        flat = g.derived("mm.2.flat", (n_out, n_in), lambda w: w.reshape(len(w), -1), stored)
        return g.linear(x, flat, g.find_weight("mm.2.bias", (n_out,)))

    def _lines(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return the rows of squares with those that end lines, begin the image and end it."""
        n, n_wide = self.width, 4 * self.n_embd
        size = g.size("n_lines", 2 * (self.n_rows // self.merge**2) + 2)
        kinds = g.input("line_kinds", (size,), "i32")
        keeps = [g.constant(f"{name}.keep", np.array(k)[:, None]) for name, k in _KEEPS.items()]
        ends = g.derived("line_ends", (4, n_wide), _line_ends, g.weight("v.image_newline", (n_wide,)))
        x = g.get_rows(x, g.input("line_ids", (size,), "i32"))
        x = x * g.embedding(keeps[0], kinds) + g.embedding(ends, kinds)
        x = blocks.linear(g, x, "mm.model.fc", n)
        borders = (g.weight(f"mm.image_{name}", (n,)) for name in ("begin", "end"))
        return x * g.embedding(keeps[1], kinds) + g.embedding(g.derived("borders", (4, n), _borders, *borders), kinds)


_KEEPS = {"squares": [1.0, 0.0, 0.0, 0.0], "lines": [1.0, 1.0, 0.0, 0.0]}


def _line_ends(row: np.ndarray) -> np.ndarray:
    return np.stack([0 * row, row, 0 * row, 0 * row])


def _borders(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    return np.stack([0 * begin, 0 * begin, begin, end])
