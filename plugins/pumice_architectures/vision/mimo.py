"""MiMo-V2 (Xiaomi 2026): blocks attend along the rows of squares, along their columns, or to the whole image."""

from __future__ import annotations

import numpy as np

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor, Weight, mask_width
from pumice.plugin.nn import blocks
from pumice_architectures.vision.any_size import Inputs
from pumice_architectures.vision.qwen import Qwen2VL
from pumice_architectures.vision.vit import HIDDEN, Grid, merged, places

WHOLE, BY_ROWS, BY_COLUMNS = -1, 0, 1  # orders of patches in which a block has a window


class MiMoVL(Qwen2VL):
    """Patches have an order, by squares along rows or columns, and see those that are near in it."""

    sees_videos = False
    most_rows = 2048

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.window = hparams.positive("window_size")
        values = hparams.metadata.get("clip.vision.wa_pattern_mode", ())
        self.modes = [int(mode) for mode in values]
        if len(self.modes) != self.n_layer or not set(self.modes) <= {WHOLE, BY_ROWS, BY_COLUMNS}:
            raise hparams.wrong("wa_pattern_mode", f"is {self.modes}, expected -1, 0 or 1 for {self.n_layer} blocks")

    def more_inputs(self, grid: Grid) -> Inputs:
        y, x = places(grid).T
        m = self.merge
        inside = y % m * m + x % m
        rows, columns = grid[0] // m, grid[1] // m
        orders = {"by_rows": y // m * columns + x // m, "by_columns": x // m * rows + y // m}
        inputs: Inputs = {}
        for name, square in orders.items():
            order = square * m**2 + inside
            far = np.abs(order[:, None] - order) > self.window
            inputs[name] = np.zeros((len(order), mask_width(self.n_rows)), np.float32)
            inputs[name][:, : len(order)] = np.where(far, HIDDEN, np.float32(0))
        return inputs

    def mask(self, g: GraphBuilder, i: int) -> Tensor | None:
        shape = (N_TOKENS, mask_width(self.n_rows))
        by_rows, by_columns = (g.input(name, shape) for name in ("by_rows", "by_columns"))
        return {WHOLE: None, BY_ROWS: by_rows, BY_COLUMNS: by_columns}[self.modes[i]]

    def sinks(self, g: GraphBuilder, i: int) -> Weight | None:
        return None if self.modes[i] == WHOLE else g.find_weight(f"v.blk.{i}.attn_sinks", (self.n_head,))

    def build(self, g: GraphBuilder) -> Tensor:
        x = blocks.layer_norm(g, self.blocks(g, self.patch_embeddings(g)), "v.post_ln", 1e-6)
        return self.perceptron(g, merged(g, x, self.merge, self.n_rows), "mm.0", "mm.2")
