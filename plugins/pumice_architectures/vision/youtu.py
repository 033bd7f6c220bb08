"""Youtu-VL (Tencent 2026) and Phi-4 reasoning vision, whose encoder is SigLIP 2."""

from __future__ import annotations

import math

import numpy as np

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice_architectures.vision.any_size import AnySize, Inputs
from pumice_architectures.vision.interpolation import resampling
from pumice_architectures.vision.qwen import Qwen25VL
from pumice_architectures.vision.vit import Grid, merged

STEP = 0.02  # by which the scale of an image falls until its patches fit


class YoutuVL(Qwen25VL):
    """Windows except in the blocks that the file names. Values of a patch have their channels last in the file."""

    sees_videos = False
    least_rows = 1
    filter = "bilinear"

    def __init__(self, hparams: HParams) -> None:
        # the blocks without windows are named one by one
        super().__init__(HParams({**hparams.metadata, "clip.vision.n_wa_pattern": 1}))
        self.whole = set(hparams.integers("wa_layer_indexes", ()))
        if not self.whole <= set(range(self.n_layer)):
            raise hparams.wrong("wa_layer_indexes", f"has a block of {sorted(self.whole)} that is not there")

    def is_whole(self, i: int) -> bool:
        return i in self.whole

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        """Return the largest size in whole squares whose pixels fit, by a scale that falls in steps."""
        scale = 1.0
        while True:
            sides = [max(math.ceil(side * scale / self.factor), 1) * self.factor for side in (height, width)]
            if math.prod(sides) <= self.most or scale <= STEP:
                break
            scale -= STEP
        too_many = math.prod(sides) > self.most or self.has_too_many_rows(*sides)
        return super().fitted(*sides) if too_many else (sides[0], sides[1])

    def patch_embeddings(self, g: GraphBuilder) -> Tensor:
        p, n = self.patch_size, self.n_embd
        stored = g.weight("v.patch_embd.weight", (n, 3 * p**2))
        first = g.derived(
            "v.patch_embd.first",
            (n, 3 * p**2),
            lambda w: w.reshape(n, p, p, 3).transpose(0, 3, 1, 2).reshape(n, -1),
            stored,
        )
        return g.linear(g.input("patches", (N_TOKENS, 3 * p**2)), first, g.find_weight("v.patch_embd.bias", (n,)))

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.patch_embeddings(g)
        if g.find_weight("v.pre_ln.weight") is not None:
            x = self.norm(g, x, "v.pre_ln")
        x = self.blocks(g, x)
        if g.find_weight("v.post_ln.weight") is not None:
            x = self.norm(g, x, "v.post_ln")
        x = blocks.rms_norm(g, x, "mm.input_norm", 1e-6)
        return self.perceptron(g, merged(g, x, self.merge, self.n_rows), "mm.0", "mm.2")


class Phi4(AnySize):
    """A table of positions in the size of the image, and a row per patch."""

    merge_key, usual_merge = "projector.scale_factor", 1
    least_rows, most_rows = 1, 8192
    filter = "bilinear"
    around = ("", "")
    has_axes = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.side = self.table_side(self.patch_size, most=64)

    def more_inputs(self, grid: Grid) -> Inputs:
        return {"shares": np.kron(*(resampling(self.side, n) for n in grid))}

    def build(self, g: GraphBuilder) -> Tensor:
        n = self.side**2
        table = g.weight("v.position_embd.weight", (n, self.n_embd))
        columns = g.derived("v.position_embd.columns", (self.n_embd, n), lambda w: w.T, table)
        x = self.patch_embeddings(g) + g.linear(g.input("shares", (N_TOKENS, n)), columns)
        return self.perceptron(g, self.blocks(g, x), "mm.0", "mm.2")
