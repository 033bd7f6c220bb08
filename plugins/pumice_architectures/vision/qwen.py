"""Qwen 2 VL (Wang et al. 2024, arXiv:2409.12191), 2.5 VL (Bai et al. 2025, arXiv:2502.13923) and 3 VL.

Images keep their ratio: their sides are multiples of a square of patches, which becomes one row. Rotary positions turn
the first half of a head's pairs by the patch's row and the other half by its column.
"""

from __future__ import annotations

import numpy as np

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor, mask_width
from pumice.plugin.nn import blocks
from pumice_architectures.vision.any_size import AnySize, Inputs
from pumice_architectures.vision.interpolation import table_inputs, table_positions
from pumice_architectures.vision.vit import Grid, Rotation, merged, places

HIDDEN = np.float32(-1e30)  # added to the scores of patches in other windows


class Qwen2VL(AnySize):
    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.rotation = Rotation.halves(self.head_dim)

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.patch_embeddings(g))
        x = merged(g, self.norm(g, x, "v.post_ln"), self.merge, self.n_rows)
        return self.perceptron(g, x, "mm.0", "mm.2")


class Qwen25VL(Qwen2VL):
    """Most blocks attend within windows only. Their mask has a value per pair of patches, which limits the image."""

    most_rows = 2048

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.pattern = hparams.positive("n_wa_pattern")
        self.window = hparams.get_int("window_size", 112) // self.factor  # in merged rows a side
        if self.window < 1:
            raise hparams.wrong("window_size", f"is less than {self.factor} pixels")

    def more_inputs(self, grid: Grid) -> Inputs:
        row, column = places(grid).T // (self.window * self.merge)
        window = row * grid[1] + column
        mask = np.zeros((len(window), mask_width(self.n_rows)), np.float32)
        mask[:, : len(window)] = np.where(window[:, None] == window, np.float32(0), HIDDEN)
        return {"windows": mask}

    def mask(self, g: GraphBuilder, i: int) -> Tensor | None:
        windows = self.windows(g)
        return None if (i + 1) % self.pattern == 0 else windows

    def windows(self, g: GraphBuilder) -> Tensor:
        """Return the mask of patches in other windows."""
        return g.input("windows", (N_TOKENS, mask_width(self.n_rows)))


class Exaone45(Qwen25VL):
    """EXAONE 4.5 (LG AI Research 2026): keys and values shared by heads; rows follow each other like tokens."""

    around = ("<vision>", "</vision>")
    has_axes = False


class Qwen3VL(Qwen2VL):
    """Learned positions of a square grid, interpolated, besides the rotary ones; rows for the model's first layers."""

    least_rows = 64

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        flags = hparams.per_layer("is_deepstack_layers", self.n_layer, False)
        self.deep_layers = [i for i, flag in enumerate(flags) if flag]
        self.width *= 1 + len(self.deep_layers)
        self.side = hparams.positive("image_size") // self.patch_size
        if not 0 < self.side <= 256:
            raise hparams.wrong("image_size", f"has {self.side} patches a side, expected 1 to 256")
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

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.patch_embeddings(g) + self.positions(g))
        x = merged(g, self.norm(g, x, "mm.input_norm"), self.merge, self.n_rows)
        return self.perceptron(g, x, "mm.0", "mm.2")
