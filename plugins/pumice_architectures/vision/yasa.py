"""Yasa 2, the encoder of Reka Edge (2026): ConvNeXt V2 (Woo et al. 2023, arXiv:2301.00808), and the mean of squares."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, ModelError, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import ImageEncoder, ImagePiece
from pumice_architectures.vision.convolution import Inputs, convolved, depthwise, tap_inputs
from pumice_architectures.vision.pixels import MOST_SIDE, Pixels, check_ratio, patches, resize
from pumice_architectures.vision.vit import corners

SIDE_OUT = 8  # rows a side that result
SIDES = [8, 16, 32, 64, 128]  # patches
MOST_STAGES, MOST_BLOCKS = 8, 128
KERNEL = 7
EPSILON = 1e-6  # of the mean by which blocks divide


class Yasa2(ImageEncoder):
    """The whole image as one square. Stages begin with a convolution of stride 2, except the first one."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(HParams({**hparams.metadata, "clip.vision.block_count": 0}))
        self.size, self.patch_size = hparams.positive("image_size"), hparams.positive("patch_size")
        self.eps = hparams.number("attention.layer_norm_epsilon")
        self.mean, self.std = (
            [float(value) for value in hparams.per_layer(key, 3)] for key in ("image_mean", "image_std")
        )
        if not all(map(math.isfinite, (*self.mean, *self.std))) or 0.0 in self.std:
            raise hparams.wrong("image_std", f"is {self.std}, expected three finite numbers")
        self.side = self.size // self.patch_size
        if self.size > MOST_SIDE:
            raise hparams.wrong("image_size", f"is {self.size}, expected at most {MOST_SIDE} pixels")
        if self.side not in SIDES or self.size % self.patch_size:
            raise hparams.wrong(
                "patch_size", f"is {self.patch_size}, expected patches a side of the image among {SIDES}"
            )
        self.n_rows = self.side**2
        self._sides = [self.side]  # of the maps of the stages

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        square = resize(pixels, self.size, self.size, "bicubic")
        inputs: Inputs = {"patches": patches(square, self.patch_size, self.mean, self.std)}
        for side in self._sides:
            inputs |= tap_inputs(f"map{side}", (side, side), KERNEL)
            inputs[f"first{side}"] = np.zeros(side**2, np.int32)
            for finer in self._halved(side):
                inputs |= {
                    f"half{finer}{name.removeprefix('merged')}": ids for name, ids in corners((finer, finer), 2).items()
                }
        for before, after in itertools.pairwise(self._sides):
            inputs |= tap_inputs(f"down{after}", (before, before), 2, 2, 0)
        inputs |= {f"single.{i}": np.full(1, i, np.int32) for i in range(SIDE_OUT**2)}
        last = self._sides[-1]
        cells = np.arange(last**2).reshape(SIDE_OUT, last // SIDE_OUT, SIDE_OUT, -1)
        for i, ids in enumerate(cells.transpose(1, 3, 0, 2).reshape(-1, SIDE_OUT**2)):
            inputs[f"pooled.{i}"] = ids.astype(np.int32)
        return ["<image>", ImagePiece(inputs), "</image>"]

    @staticmethod
    def _halved(side: int) -> list[int]:
        """Return a side and its halves above the side of the result."""
        sides = []
        while side > SIDE_OUT:
            sides.append(side)
            side //= 2
        return sides

    def build(self, g: GraphBuilder) -> Tensor:
        kernel = g.weight("v.patch_embd.weight")
        n, n_values = int(kernel.shape[0]), 3 * self.patch_size**2
        flat = g.derived("v.patch_embd.flat", (n, n_values), lambda w: w.reshape(n, -1), kernel)
        x = g.linear(g.input("patches", (N_TOKENS, n_values)), flat, g.find_weight("v.patch_embd.bias", (n,)))
        x = self._norm(g, x, "v.patch_ln")
        self._sides = [self.side]
        for stage in range(MOST_STAGES):
            is_there = any(g.find_weight(f"v.stage.{stage}.{name}.weight") for name in ("down.conv", "blk.0.dw"))
            if not is_there:
                if not stage:
                    raise ModelError("tensor v.stage.0.blk.0.dw.weight is missing from the file")
                break
            x = self._stage(g, x, stage)
        return self._projected(g, x)

    def _stage(self, g: GraphBuilder, x: Tensor, stage: int) -> Tensor:
        name, side = f"v.stage.{stage}.", self._sides[-1]
        if g.find_weight(f"{name}down.conv.weight"):
            if side % 2 or side // 2 < SIDE_OUT:
                raise ModelError(f"tensor {name}down.conv.weight halves a map of {side} rows a side")
            side //= 2
            self._sides.append(side)
            x = convolved(g, self._norm(g, x, f"{name}down.ln"), f"down{side}", f"{name}down.conv", _size(g, side))
        for i in itertools.count():
            blk = f"{name}blk.{i}."
            if not g.find_weight(f"{blk}dw.weight"):
                break
            if i == MOST_BLOCKS:
                raise ModelError(f"more than {MOST_BLOCKS} blocks {name}blk.*")
            y = depthwise(g, x, f"map{side}", f"{blk}dw", str(x.shape[0]))
            y = self._norm(g, y, f"{blk}ln")
            y = g.gelu_erf(blocks.linear(g, y, f"{blk}pw1"))
            y = self._responding(g, y, f"{blk}grn", side)
            x = x + blocks.linear(g, y, f"{blk}pw2", blocks.width(x))
        return x

    def _norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return blocks.layer_norm(g, x, name, self.eps)

    def _responding(self, g: GraphBuilder, x: Tensor, name: str, side: int) -> Tensor:
        """Return ``x`` scaled by the norm of each value over the map, as a share of the values' mean norm."""
        n = blocks.width(x)
        total = x * x
        for finer in self._halved(side):
            total = self._summed(g, total, f"half{finer}", 4, _size(g, finer // 2))
        total = self._summed(g, total, "single", SIDE_OUT**2, _size(g, 1))
        norms = g.sqrt(total)
        mean = g.linear(norms, g.constant(f"{name}.mean", np.full((1, n), 1 / n, np.float32)))
        shares = g.div(norms, g.scale(mean, 1.0, EPSILON))
        ids = g.input(f"first{side}", (str(x.shape[0]),), "i32")
        flat = [
            g.derived(f"{name}.{part}.flat", (n,), lambda w: w.reshape(-1), g.weight(f"{name}.{part}"))
            for part in ("weight", "bias")
        ]
        return x + x * g.get_rows(shares, ids) * flat[0] + flat[1]

    def _summed(self, g: GraphBuilder, x: Tensor, name: str, n: int, size: str) -> Tensor:
        """Return sums of ``n`` rows each, those of the inputs ``name.i``."""
        ids = [g.input(f"{name}.{i}", (size,), "i32") for i in range(n)]
        return functools.reduce(Tensor.__add__, [g.get_rows(x, rows) for rows in ids])

    def _projected(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return the mean of each square of an even grid, with positions, through two linear maps."""
        side = self._sides[-1]
        table = g.find_weight("v.vision_pos_embed", (side**2, blocks.width(x)))
        n = (side // SIDE_OUT) ** 2
        size = _size(g, SIDE_OUT)
        ids = [g.input(f"pooled.{i}", (size,), "i32") for i in range(n)]
        parts = [g.get_rows(x, rows) for rows in ids]
        if table is not None:
            parts += [g.embedding(table, rows) for rows in ids]
        x = functools.reduce(Tensor.__add__, parts) * (1 / n)
        return blocks.linear(g, g.gelu_erf(blocks.linear(g, x, "mm.0")), "mm.2", self.width)


def _size(g: GraphBuilder, side: int) -> str:
    """Return the name of the number of rows of a map."""
    return g.size(f"n_{side}", side**2)
