"""MiniMax-M3: rotary positions by time, row and column; perceptrons before and after squares are joined."""

from __future__ import annotations

import functools

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor
from pumice_architectures.vision.any_size import AnySize
from pumice_architectures.vision.vit import falling, merged


class MiniMaxM3(AnySize):
    """Each axis turns its own part of a head. An image is at time 0, so that the first part does not turn."""

    least_rows, usual_rows, most_rows = 4, 576, 4096
    around = ("]<]start of image[>[", "]<]end of image[>[")
    has_axes = False
    known_activation = "gelu_erf"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_turned = 2 * (self.head_dim // 3 // 2)  # values of a head by axis
        if not self.n_turned:
            raise hparams.wrong("attention.head_count", f"is {self.n_head}, but heads need at least 6 values")

    def rotated(self, g: GraphBuilder, x: Tensor) -> Tensor:
        n, d = self.n_turned, self.head_dim
        where = g.input("places", (N_TOKENS, 2), "i32")
        parts = [g.slice(x, 0, n)]
        for axis in (0, 1):
            part = g.slice(x, (axis + 1) * n, (axis + 2) * n)
            parts.append(g.rope(part, where, freqs=falling(n // 2), neox=True, axes=(axis,) * (n // 2)))
        if d > 3 * n:
            parts.append(g.slice(x, 3 * n, d))
        return functools.reduce(g.concat, parts)

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.norm(g, self.patch_embeddings(g), "v.pre_ln"))
        x = merged(g, self.perceptron(g, x, "mm.1", "mm.2"), self.merge, self.n_rows)
        return self.perceptron(g, x, "mm.merger.fc1", "mm.merger.fc2")
