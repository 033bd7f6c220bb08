"""Gemma 3n's encoder of images: MobileNetV5 (Google 2025), convolutions and attention with one head of keys.

The last stages have attention, each among the patches of its own resolution: one graph for each. Blocks are those of
MobileNetV4 (Qin et al. 2024, arXiv:2404.10518), told apart by their tensors.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, ModelError, Tensor, Weight
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import HIDDEN, ImageEncoder, ImagePiece, MediaStage
from pumice_architectures.vision.convolution import Inputs, convolved, depthwise, tap_inputs
from pumice_architectures.vision.pixels import Pixels, check_ratio, normalized, resize

SECOND, LAST = 2, 3  # stages of blocks with attention, of four
STRIDE = 16  # pixels a side of a row in the first of these
MOST_SIDE = 1024  # pixels
MOST_BLOCKS = 128  # of a stage
MOST_KERNEL = 7
EPSILON = 1e-6
UNIT = 8  # values of a head


class Gemma3n(ImageEncoder):
    """The whole image as one square; maps of the last two stages are joined, and become 16 x 16 rows.

    A further row is the token of the image's end, which has its embedding in the projector.
    """

    def __init__(self, hparams: HParams) -> None:
        super().__init__(HParams({**hparams.metadata, "clip.vision.block_count": 0}))
        self.size, self.n_embd = hparams.positive("image_size"), hparams.positive("embedding_length")
        if self.size > MOST_SIDE or self.size % (2 * STRIDE):
            raise hparams.wrong("image_size", f"is {self.size}, expected a multiple of 32 up to {MOST_SIDE}")
        # As the converter writes it, this is the side by the number of rows.
        n_rows = self.size // hparams.positive("patch_size")
        self.side, self.high = int(n_rows**0.5), self.size // STRIDE
        if self.side < 1 or self.high % self.side:
            raise hparams.wrong("patch_size", f"is for {self.side} rows a side, which do not divide {self.high}")
        self.n_rows = self.high**2
        self.stages = (MediaStage((self.high // 2) ** 2, self.build_last),)
        # Building a graph collects its convolutions by input: side of the map, of the kernel, and stride.
        self.kernels: tuple[dict[str, tuple[int, int, int]], ...] = ({}, {})
        self._kernels, self._last = self.kernels[0], self.high

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        square = normalized(resize(pixels, self.size, self.size, "bilinear"), [0.0] * 3, [1.0] * 3)
        first: Inputs = {"pixels": square.reshape(-1, 3), "patches": np.arange(self.n_rows, dtype=np.int32)}
        last: Inputs = {"row_ids": np.arange(self.n_rows // 4, dtype=np.int32)}
        for inputs, kernels in zip((first, last), self.kernels, strict=True):
            for name, (side, kernel, stride) in kernels.items():
                inputs |= self._taps(name, side, kernel, stride)
        first["hidden"] = _hidden(self.n_rows, self.n_rows // 4)
        first["key_ids"] = np.minimum(np.arange(self.n_rows, dtype=np.int32), self.n_rows // 4 - 1)
        rows, columns = np.indices((self.high, self.high))
        last["above"] = (rows // 2 * (self.high // 2) + columns // 2).reshape(-1).astype(np.int32)
        cells = np.arange(self.n_rows).reshape(self.side, self.high // self.side, self.side, -1)
        for i, ids in enumerate(cells.transpose(1, 3, 0, 2).reshape(-1, self.side**2)):
            last[f"pooled.{i}"] = np.pad(ids, (0, 1)).astype(np.int32)
        tokens = np.arange(self.side**2 + 1) // self.side**2
        last["tokens"], last["is pooled"] = tokens.astype(np.int32), (1 - tokens).astype(np.float32)[:, None]
        return ["\n\n<start_of_image>", ImagePiece(first, later=(last,)), "\n\n"]

    def _taps(self, name: str, side: int, kernel: int, stride: int) -> Inputs:
        """Return the inputs of a convolution of a map of ``side`` to one of ``ceil(side / stride)``, padded evenly."""
        padding = max((-(-side // stride) - 1) * stride + kernel - side, 0)
        return tap_inputs(name, (side, side), kernel, stride, padding // 2 if stride > 1 else kernel // 2)

    def build(self, g: GraphBuilder) -> Tensor:
        """Return the map ``[high * high, n]`` of the stage before the last, from ``pixels [size * size, 3]``."""
        self._kernels, self._last = self.kernels[0], self.high
        pixels = g.input("pixels", (_size(g, self.size), 3))
        x = self.convolution(g, pixels, "v.conv_stem.conv", self.size, 2)
        x = g.gelu(blocks.rms_norm(g, x, "v.conv_stem.bn", EPSILON))
        side = self.size // 2
        for stage in range(LAST):
            x, side = self.blocks(g, x, stage, side)
        return x

    def build_last(self, g: GraphBuilder) -> Tensor:
        """Return the rows ``[side * side, width]`` of the prompt, from the map of ``build``."""
        self._kernels, self._last = self.kernels[1], self.high // 2
        stem = g.weight(f"v.blk.{SECOND}.0.pw_proj.conv.weight")
        high = g.input("rows", (_size(g, self.high), int(stem.shape[0])))
        low, _ = self.blocks(g, high, LAST, self.high)
        above = g.get_rows(low, g.input("above", (_size(g, self.high),), "i32"))
        x = self.pointwise(g, g.concat(high, above), "v.msfa.ffn.pw_exp.conv")
        x = g.gelu(blocks.rms_norm(g, x, "v.msfa.ffn.pw_exp.bn", EPSILON))
        x = self.pointwise(g, x, "v.msfa.ffn.pw_proj.conv")
        x = blocks.rms_norm(g, x, "v.msfa.ffn.pw_proj.bn", EPSILON)
        size, n = g.size("n_pooled", self.side**2 + 1), (self.high // self.side) ** 2
        parts = [g.get_rows(x, g.input(f"pooled.{i}", (size,), "i32")) for i in range(n)]
        x = functools.reduce(Tensor.__add__, parts) * (1 / n)
        x = blocks.rms_norm(g, x, "v.msfa.norm", EPSILON) * self.n_embd**0.5
        x = blocks.rms_norm(g, x, "mm.soft_emb_norm", EPSILON) * g.input("is pooled", (size, 1))
        tokens = token_embeddings(g, "mm.", self.n_embd, (0,))
        x = x + g.embedding(tokens, g.input("tokens", (size,), "i32"))
        return g.rms_norm(blocks.linear(g, x, "mm.input_projection", self.width), None, EPSILON)

    def blocks(self, g: GraphBuilder, x: Tensor, stage: int, side: int) -> tuple[Tensor, int]:
        """Return the map ``x [side * side, n]`` after a stage, whose first block halves it, and its side."""
        for i in itertools.count():
            blk = f"v.blk.{stage}.{i}."
            kinds = ("conv_exp", "attn.query.proj", "pw_proj.conv")
            kind = next((kind for kind in kinds if g.find_weight(f"{blk}{kind}.weight") is not None), "")
            if not kind:
                break
            if i == MOST_BLOCKS:
                raise ModelError(f"more than {MOST_BLOCKS} blocks v.blk.{stage}.*")
            stride = 1 if i else 2
            if kind == "attn.query.proj":
                x = self._attention(g, x, blk, side)
            else:
                block = self._edge_residual if kind == "conv_exp" else self._inverted_residual
                y = block(g, x, blk, side, stride)
                x = y if stride > 1 or y.shape[-1] != x.shape[-1] else x + y
            side //= stride
        if not i:
            raise ModelError(f"tensors of v.blk.{stage}.0 are missing from the file")
        return x, side

    def pointwise(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Return a convolution of single rows."""
        return convolved(g, x, "", name, "")

    def convolution(self, g: GraphBuilder, x: Tensor, name: str, side: int, stride: int, alone: bool = False) -> Tensor:
        """Return a convolution of a map ``x [side * side, n]``.

        Args:
            g: builder of the graph.
            x: the map.
            name: name of the weight, without its suffix.
            side: side of the map.
            stride: rows and columns between two results.
            alone: convolve each of the ``n`` values by itself.
        """
        kernel = int(g.weight(f"{name}.weight").shape[-1])
        if not 0 < kernel <= MOST_KERNEL:
            raise ModelError(f"tensor {name}.weight has a kernel of {kernel}, expected 1 to {MOST_KERNEL}")
        inputs = f"map{side}.{kernel}.{stride}"
        self._kernels[inputs] = side, kernel, stride
        # Attention is among the rows of a step: those of the graph's last map.
        halved = N_TOKENS if side // stride == self._last else _size(g, side // stride)
        size = str(x.shape[0]) if stride == 1 else halved
        return (depthwise if alone else convolved)(g, x, inputs, name, size)

    def _edge_residual(self, g: GraphBuilder, x: Tensor, blk: str, side: int, stride: int) -> Tensor:
        x = self.convolution(g, x, f"{blk}conv_exp", side, stride)
        x = g.gelu(blocks.rms_norm(g, x, f"{blk}bn1", EPSILON))
        return blocks.rms_norm(g, self.pointwise(g, x, f"{blk}conv_pwl"), f"{blk}bn2", EPSILON)

    def _inverted_residual(self, g: GraphBuilder, x: Tensor, blk: str, side: int, stride: int) -> Tensor:
        has_middle = g.find_weight(f"{blk}dw_mid.conv.weight") is not None
        if g.find_weight(f"{blk}dw_start.conv.weight") is not None:
            x = self.convolution(g, x, f"{blk}dw_start.conv", side, 1 if has_middle else stride, alone=True)
            x = blocks.rms_norm(g, x, f"{blk}dw_start.bn", EPSILON)
        x = g.gelu(blocks.rms_norm(g, self.pointwise(g, x, f"{blk}pw_exp.conv"), f"{blk}pw_exp.bn", EPSILON))
        if has_middle:
            x = self.convolution(g, x, f"{blk}dw_mid.conv", side, stride, alone=True)
            x = g.gelu(blocks.rms_norm(g, x, f"{blk}dw_mid.bn", EPSILON))
        x = blocks.rms_norm(g, self.pointwise(g, x, f"{blk}pw_proj.conv"), f"{blk}pw_proj.bn", EPSILON)
        return self._scaled(g, x, blk)

    def _attention(self, g: GraphBuilder, x: Tensor, blk: str, side: int) -> Tensor:
        """Return ``x`` with attention of its rows to all, or to those of a smaller map."""
        y = blocks.rms_norm(g, x, f"{blk}norm", EPSILON)
        q = self.pointwise(g, y, f"{blk}attn.query.proj")
        k, v = (self._others(g, y, f"{blk}attn.{name}.", side) for name in ("key", "value"))
        n = blocks.width(k)
        if blocks.width(q) % n or n % UNIT:
            raise ModelError(f"tensor {blk}attn.query.proj.weight does not fit heads of {n} values")
        is_whole = k.shape[0] == N_TOKENS
        if not is_whole:  # rows of keys behind those of the map are hidden
            k, v = (g.get_rows(rows, g.input("key_ids", (N_TOKENS,), "i32")) for rows in (k, v))
        q, k, v = (rows.reshape(N_TOKENS, blocks.width(rows) // n, n) for rows in (q, k, v))
        if not is_whole:
            q = g.concat(q, g.scale(g.slice(q, 0, UNIT), 0.0, 1.0))
            k = g.concat(k, g.input("hidden", (N_TOKENS, 1, UNIT)))
        y = g.attention(q, k, v, scale=n**-0.5, causal=False, cache=False)
        y = y.reshape(N_TOKENS, int(y.shape[1]) * n)
        return x + self._scaled(g, self.pointwise(g, y, f"{blk}attn.output.proj"), blk)

    def _others(self, g: GraphBuilder, x: Tensor, name: str, side: int) -> Tensor:
        """Return keys or values, of a smaller map if there is a convolution."""
        if g.find_weight(f"{name}down_conv.weight") is not None:
            x = self.convolution(g, x, f"{name}down_conv", side, 2, alone=True)
            x = blocks.rms_norm(g, x, f"{name}norm", EPSILON)
        return self.pointwise(g, x, f"{name}proj")

    def _scaled(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        stored = g.find_weight(f"{blk}layer_scale.gamma")
        if stored is None:
            return x
        return x * g.derived(f"{blk}layer_scale.flat", (blocks.width(x),), lambda w: w.reshape(-1), stored)


def _size(g: GraphBuilder, side: int) -> str:
    """Return the name of the number of rows of a map."""
    return g.size(f"n_{side}", side**2)


def token_embeddings(g: GraphBuilder, prefix: str, n: int, tokens: tuple[int, ...]) -> Weight:
    """Return a row of zeros, and the normalized embeddings of tokens that have them in the projector.

    Args:
        g: the graph.
        prefix: beginning of the tensors' names.
        n: values of a row.
        tokens: rows of the table of embeddings.
    """
    table, norm = g.weight(f"{prefix}embedding.weight"), g.weight(f"{prefix}hard_emb_norm.weight", (n,))
    if table.shape[1:] != (n,):
        raise ModelError(f"tensor {prefix}embedding.weight has rows of {table.shape[1:]} values, expected {n}")

    def make(table: NDArray[np.float32], norm: NDArray[np.float32]) -> NDArray[np.float32]:
        rows = table[list(tokens)].astype(np.float64)
        rows *= norm / np.sqrt((rows**2).mean(-1, keepdims=True) + EPSILON)
        return np.pad(rows, ((1, 0), (0, 0))).astype(np.float32)

    return g.derived(f"{prefix}tokens", (1 + len(tokens), n), make, table, norm)


def _hidden(n: int, n_seen: int) -> NDArray[np.float32]:
    """Return the values ``[n, 1, UNIT]`` that are appended to keys: they hide all but the first ``n_seen`` rows."""
    hidden = np.zeros((n, 1, UNIT), np.float32)
    hidden[n_seen:, 0, 0] = HIDDEN
    return hidden
