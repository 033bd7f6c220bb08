"""MobileVLM (Chu et al. 2023, arXiv:2312.16886), V2 (2024, arXiv:2402.03766) and GLM-Edge-V."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import HIDDEN, ImagePiece, mask_width
from pumice_architectures.vision.convolution import Inputs, convolved, depthwise, mean_of_rows, tap_inputs
from pumice_architectures.vision.llava import padded
from pumice_architectures.vision.pixels import Pixels, check_ratio, patches, resize
from pumice_architectures.vision.vit import ViT, among, class_inputs, corners, gathered

GREY = (122, 116, 104)  # around an image: the mean of CLIP's pixels


class LDP(ViT):
    """MobileVLM: CLIP without its last block, two linear maps, and two blocks of convolutions, the second of stride 2.

    Results of the second block are kept once for each patch of their square, since a step has one number of rows.
    """

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        if self.side % 2:
            raise hparams.wrong("image_size", f"has {self.side} patches a side, expected an even number")
        self.n_run = max(self.n_layer - 1, 0)
        self.n_rows = self.side**2 + 1

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        longest = max(pixels.shape[:2])
        square = np.empty((longest, longest, 3), np.uint8)
        square[:] = GREY
        top, left = ((longest - side) // 2 for side in pixels.shape[:2])
        square[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
        rows = patches(
            resize(square, self.image_size, self.image_size, "bicubic"), self.patch_size, self.mean, self.std
        )
        return [ImagePiece({**class_inputs(rows), **self.more_inputs()})]

    def more_inputs(self) -> Inputs:
        """Return the inputs of the projector. The row of the class token is kept, and hidden from means."""
        grid = (self.side, self.side)
        y, x = np.indices(grid).reshape(2, -1)
        square = y // 2 * (self.side // 2) + x // 2
        halved = {name: values[square] for name, values in tap_inputs("half", grid, 3, stride=2).items()}
        hidden = np.zeros((self.side**2 + 1, mask_width(self.n_rows)), np.float32)
        hidden[:, 0] = HIDDEN
        rows = {name: _behind_class(values) for name, values in (tap_inputs("same", grid, 3) | halved).items()}
        return {**rows, **{name: ids + 1 for name, ids in corners(grid, 2).items()}, "not_class": hidden}

    def features(self, g: GraphBuilder) -> Tensor:
        """Return the rows after the last block but one."""
        x = self.with_class(g, self.patch_embeddings(g)) + self.positions(g)
        if g.find_weight("v.pre_ln.weight") is not None:
            x = blocks.layer_norm(g, x, "v.pre_ln", self.eps)
        return self.blocks(g, x)

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.perceptron(g, self.features(g), "mm.model.mlp.1", "mm.model.mlp.3")
        x = x + self._mobile_block(g, x, 1, "same")
        x = self._mobile_block(g, x, 2, "half")
        return gathered(g, x, 2, self.n_rows)[0]

    def _mobile_block(self, g: GraphBuilder, x: Tensor, number: int, taps: str) -> Tensor:
        name, n = f"mm.model.mb_block.{number}.block.", int(x.shape[-1])
        x = depthwise(g, x, taps, f"{name}0.0", N_TOKENS)
        x = blocks.layer_norm(g, x, f"{name}0.1", self.eps)
        x = x * _hard_sigmoid(g, x)
        mask = g.input("not_class", (N_TOKENS, mask_width(self.n_rows)))
        gate = g.relu(_linear(g, mean_of_rows(g, x, mask), f"{name}1.fc1"))
        x = x * _hard_sigmoid(g, _linear(g, gate, f"{name}1.fc2", n))
        return blocks.layer_norm(g, _linear(g, x, f"{name}2.0", n), f"{name}2.1", self.eps)


def _behind_class(values: NDArray[np.float32] | NDArray[np.int32]) -> NDArray[np.float32] | NDArray[np.int32]:
    """Return an input of patches as one of rows whose first one is the class token: ids, or values by row."""
    if values.ndim == 1:
        return np.pad(values.astype(np.int32) + np.int32(1), (1, 0)).astype(np.int32)
    return np.pad(values.astype(np.float32), ((1, 0), (0, 0)))


def _hard_sigmoid(g: GraphBuilder, x: Tensor) -> Tensor:
    return g.clamp(g.scale(x, 1 / 6, 0.5), 0.0, 1.0)


def _linear(g: GraphBuilder, x: Tensor, name: str, n_out: int | None = None) -> Tensor:
    """Return a linear map, whose matrix may be stored as a kernel of one place."""
    stored = g.weight(f"{name}.weight")
    n_out = int(stored.shape[0]) if n_out is None else n_out
    flat = g.derived(f"{name}.flat", (n_out, int(x.shape[-1])), lambda w: w.reshape(len(w), -1), stored)
    return g.linear(x, flat, g.find_weight(f"{name}.bias", (n_out,)))


class LDPv2(LDP):
    """MobileVLM V2: two linear maps, the mean of squares, and a convolution of these beside them."""

    def more_inputs(self) -> Inputs:
        grid = (self.side, self.side)
        return {
            **{name: ids + 1 for name, ids in corners(grid, 2).items()},
            **tap_inputs("same", (self.side // 2, self.side // 2), 3),
        }

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.perceptron(g, self.features(g), "mm.model.mlp.0", "mm.model.mlp.2")
        a, b, c, d = gathered(g, x, 2, self.n_rows)
        x = (a + b + c + d) * 0.25
        return x + depthwise(g, x, "same", "mm.model.peg.0", g.size("n_merged", max(self.n_rows // 4, 1)))


class GLMEdge(ViT):
    """GLM-Edge-V: SigLIP, a convolution of stride 2, and a gated map; two rows begin and end an image."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        if self.side % 2:
            raise hparams.wrong("image_size", f"has {self.side} patches a side, expected an even number")

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        square = padded(pixels, self.image_size, self.image_size)
        rows = patches(square, self.patch_size, self.mean, self.std)
        n = (self.side // 2) ** 2
        ids = np.array([0, *range(n), 0], np.int32)
        kinds = np.array([1, *[0] * n, 2], np.int32)
        inputs = {**tap_inputs("half", (self.side, self.side), 2, stride=2, pad=0), "line_ids": ids, "kinds": kinds}
        return [ImagePiece({"patches": rows, **inputs}, n_before=1, n_after=1)]

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.patch_embeddings(g) + self.positions(g))
        if g.find_weight("v.post_ln.weight") is not None:
            x = self.norm(g, x, "v.post_ln")
        x = convolved(g, x, "half", "adapter.conv", g.size("n_squares", self.side**2 // 4))
        name, n = "adapter.linear.", self.width
        x = blocks.linear(g, x, f"{name}linear", n)
        x = g.gelu_erf(blocks.layer_norm(g, x, f"{name}norm1", 1e-5))
        x = g.silu(blocks.linear(g, x, f"{name}gate")) * blocks.linear(g, x, f"{name}dense_h_to_4h")
        x = blocks.linear(g, x, f"{name}dense_4h_to_h", n)
        return between(g, x, self.side**2 // 4 + 2, "adapter.boi", "adapter.eoi")


def between(g: GraphBuilder, x: Tensor, n_rows: int, first: str, last: str) -> Tensor:
    """Return rows ``x [t, n]`` between two stored ones, as the inputs ``line_ids`` and ``kinds`` order them."""
    size = g.size("n_lines", n_rows)
    x = g.get_rows(x, g.input("line_ids", (size,), "i32"))
    return among(g, x, "kinds", [g.weight(name) for name in (first, last)])
