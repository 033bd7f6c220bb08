"""MiMo-V2 (Xiaomi 2026): blocks attend along the rows of squares, along their columns, or to the whole image."""

from __future__ import annotations

import numpy as np

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor, Weight
from pumice.plugin.nn import blocks
from pumice_architectures.vision.any_size import Inputs
from pumice_architectures.vision.qwen import Qwen2VL
from pumice_architectures.vision.vit import Grid, merged

WHOLE, BY_ROWS, BY_COLUMNS = -1, 0, 1  # orders of patches in which a block has a window


class MiMoVL(Qwen2VL):
    """Patches have an order, by squares along rows or columns, and see those that are near in it."""

    sees_videos = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.window = hparams.positive("window_size")
        self.modes = hparams.integers("wa_pattern_mode")
        if len(self.modes) != self.n_layer or not set(self.modes) <= {WHOLE, BY_ROWS, BY_COLUMNS}:
            raise hparams.wrong("wa_pattern_mode", f"is {self.modes}, expected -1, 0 or 1 for {self.n_layer} blocks")

    def arranged(self, inputs: Inputs, grid: Grid) -> Inputs:
        """Return the inputs with patches by squares along rows, and the places of these in the order by columns."""
        m = self.merge
        rows, columns = grid[0] // m, grid[1] // m
        cells = np.arange(grid[0] * grid[1]).reshape(rows, m, columns, m).transpose(0, 2, 1, 3).reshape(-1, m**2)
        order = np.empty(cells.size, np.int32)
        order[cells.reshape(-1)] = np.arange(cells.size)
        moved = {name: order[x] if name.startswith("merged.") else x[cells.reshape(-1)] for name, x in inputs.items()}
        squares = np.arange(rows * columns).reshape(rows, columns).T.reshape(-1, 1)
        by_columns = (squares * m**2 + np.arange(m**2)).reshape(-1).astype(np.int32)
        return {**moved, "by_columns": by_columns, "by_rows": np.argsort(by_columns).astype(np.int32)}

    def attend(self, g: GraphBuilder, q: Tensor, k: Tensor, v: Tensor, i: int) -> Tensor:
        mode, sinks = self.modes[i], self.sinks(g, i)
        by_columns, by_rows = (g.input(name, (N_TOKENS,), "i32") for name in ("by_columns", "by_rows"))
        if mode == BY_COLUMNS:
            q, k, v = (g.get_rows(x, by_columns) for x in (q, k, v))
        window = 0 if mode == WHOLE else 2 * self.window
        y = g.attention(q, k, v, scale=self.score_scale, causal=False, cache=False, window=window, sinks=sinks)
        return g.get_rows(y, by_rows) if mode == BY_COLUMNS else y

    def sinks(self, g: GraphBuilder, i: int) -> Weight | None:
        return None if self.modes[i] == WHOLE else g.find_weight(f"v.blk.{i}.attn_sinks", (self.n_head,))

    def build(self, g: GraphBuilder) -> Tensor:
        x = blocks.layer_norm(g, self.blocks(g, self.patch_embeddings(g)), "v.post_ln", 1e-6)
        return self.perceptron(g, merged(g, x, self.merge, self.n_rows), "mm.0", "mm.2")
