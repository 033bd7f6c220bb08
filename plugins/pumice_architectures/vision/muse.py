"""Muse Glimmer (Meta 2026): windows of patches, and a perceptron over squares whose values are ordered by channel."""

from __future__ import annotations

import itertools
import math

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice_architectures.vision.any_size import Inputs
from pumice_architectures.vision.interpolation import table_inputs, table_positions
from pumice_architectures.vision.vit import Grid, Rotation, folded
from pumice_architectures.vision.windows import Windowed

WHOLE_EVERY = 4  # blocks, of which the last one attends to all patches


class MuseGlimmer(Windowed):
    """Images are only scaled down. A window has as many patches a side as the table of positions."""

    least_rows, most_rows = 1, 4096
    filter = "lanczos"
    around = ("<|image_start|>", "<|image_end|>")
    has_axes = False
    known_activation = "gelu_erf"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.rotation = Rotation.columns_first(self.head_dim)
        self.side = self.table_side(self.factor)
        self.set_window(self.side)

    def is_whole(self, i: int) -> bool:
        return (i + 1) % WHOLE_EVERY == 0 or i + 1 == self.n_layer

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        size = self._nearest(height, width)
        return self.bounded(*size) if self.has_too_many_rows(*size) else size

    def _nearest(self, height: int, width: int) -> tuple[int, int]:
        """Return the size in whole squares with the ratio nearest to an image's, and of these the largest one."""
        most, ratio = self.most // self.factor**2, width / height
        rows, columns = height / self.factor, width / self.factor
        if rows * columns > most:
            rows = math.sqrt(most / ratio)
            columns = rows * ratio
        near = itertools.product(*((math.floor(n), math.ceil(n)) for n in (rows, columns)))
        grids = [(r, c) for r, c in near if r and c and r * c <= most]
        grids = grids or [(min(max(round(rows), 1), most), min(max(round(columns), 1), most))]
        rows, columns = min(grids, key=lambda grid: (abs(grid[0] / grid[1] - height / width), -grid[0] * grid[1]))
        return rows * self.factor, columns * self.factor

    def more_inputs(self, grid: Grid) -> Inputs:
        # The model was trained with rows and columns of the table exchanged, but not those of the image.
        return table_inputs(self.side, (grid[1], grid[0]), "bordered")

    def build(self, g: GraphBuilder) -> Tensor:
        table = g.weight("v.position_embd.weight", (self.side**2, self.n_embd))
        x = self.patch_embeddings(g) + table_positions(g, table, "bordered")
        x = self.norm(g, self.blocks(g, self.norm(g, x, "v.pre_ln")), "v.post_ln")
        x = g.gelu_erf(folded(g, x, "mm.0", self.merge, self.n_rows))
        x = g.gelu_erf(blocks.linear(g, x, "mm.1"))
        return blocks.linear(g, x, "mm.2", self.width)
