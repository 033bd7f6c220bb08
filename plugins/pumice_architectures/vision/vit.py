"""The vision transformer (Dosovitskiy et al. 2020, arXiv:2010.11929) that CLIP, SigLIP and their relatives share."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, ModelError, Tensor, Weight, fixed
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import HIDDEN, ImageEncoder, mask_width
from pumice_architectures.vision.pixels import MOST_SIDE

Grid = tuple[int, int]  # rows and columns of patches
MOST_PATCHES = 1 << 16


@dataclass(frozen=True)
class Rotation:
    """Rotary positions of patches: radians a place for each pair of a head's values, and the axis that turns it.

    Attributes:
        freqs: of each pair.
        axes: 0 for pairs turned by the row, 1 by the column.
        neox: values that are half a head apart make a pair; else neighbours.
    """

    freqs: tuple[float, ...]
    axes: tuple[int, ...]
    neox: bool

    @classmethod
    def halves(cls, head_dim: int) -> Rotation:
        """Return that of Qwen 2 VL: half of the pairs turn by the row, the others by the column."""
        n = head_dim // 4
        return cls(falling(n) * 2, (0,) * n + (1,) * n, neox=True)

    @classmethod
    def columns_first(cls, head_dim: int) -> Rotation:
        """Return that of Llama 4: neighbours; half of the pairs turn by the column, the others by the row."""
        n = head_dim // 4
        return cls(falling(n) * 2, (1,) * n + (0,) * n, neox=False)

    @classmethod
    def alternating(cls, head_dim: int) -> Rotation:
        """Return that of MoonViT: neighbours; every other pair turns by the column, the rest by the row."""
        n = head_dim // 4
        return cls(tuple(freq for freq in falling(n) for _ in range(2)), (1, 0) * n, neox=False)


def falling(n: int, base: float = 10000.0) -> tuple[float, ...]:
    """Return ``n`` frequencies from 1 to nearly ``1 / base``."""
    return tuple(base ** (-i / n) for i in range(n))


def places(grid: Grid) -> NDArray[np.int32]:
    """Return row and column ``[rows * columns, 2]`` of each patch of a grid, row by row."""
    return np.ascontiguousarray(np.indices(grid, np.int32).reshape(2, -1).T)


def corners(grid: Grid, merge: int) -> dict[str, NDArray[np.int32]]:
    """Return the inputs ``merged.i``: the patch at place ``i``, row by row, of each square of ``merge * merge``."""
    cells = np.arange(grid[0] * grid[1], dtype=np.int32).reshape(grid[0] // merge, merge, -1, merge)
    ids = cells.transpose(1, 3, 0, 2).reshape(merge**2, -1)
    return {f"merged.{i}": np.ascontiguousarray(row) for i, row in enumerate(ids)}


def window_mask(window: NDArray[np.int32], n_rows: int) -> NDArray[np.float32]:
    """Return a mask ``[t, mask_width(n_rows)]`` of the scores of patches by the number of their window."""
    mask = np.zeros((len(window), mask_width(n_rows)), np.float32)
    mask[:, : len(window)] = np.where(window[:, None] == window, np.float32(0), HIDDEN)
    return mask


def gathered(g: GraphBuilder, x: Tensor, merge: int, n_rows: int, partial: bool = False) -> list[Tensor]:
    """Return the rows of ``x`` that the inputs ``merged.i`` name, for each ``i``; ``n_rows``: maximum rows of ``x``.

    ``partial``: squares may lack patches, whose values are 0; the inputs ``inside.i`` are 1 for the others.
    """
    size = g.size("n_merged", max(n_rows // merge**2, 1))
    rows = [g.get_rows(x, g.input(f"merged.{i}", (size,), "i32")) for i in range(merge**2)]
    return [row * g.input(f"inside.{i}", (size, 1)) for i, row in enumerate(rows)] if partial else rows


def merged(g: GraphBuilder, x: Tensor, merge: int, n_rows: int, partial: bool = False) -> Tensor:
    """Return a row per square of ``merge * merge`` patches, with the patches' values side by side, as ``gathered``."""
    return functools.reduce(g.concat, gathered(g, x, merge, n_rows, partial))


def limited(hparams: HParams, least: int, most: int, factor: int, most_rows: int) -> tuple[int, int]:
    """Return fewest and most pixels of an image as the options say, ``image_min_tokens`` and ``image_max_tokens``.

    Args:
        hparams: keys of the file, with the options.
        least, most: pixels as the file says.
        factor: pixels a side of what becomes a token.
        most_rows: tokens that the encoder can make of an image.

    Raises:
        ModelError: an option is more than that, or they contradict each other.
    """
    fewest_rows, rows = hparams.get_int("image_min_tokens", 0), hparams.get_int("image_max_tokens", 0)
    for name, n in (("image_min_tokens", fewest_rows), ("image_max_tokens", rows)):
        if n > most_rows:
            raise ModelError(f"{name} is {n}, but this encoder makes at most {most_rows} tokens of an image")
    if rows and fewest_rows > rows:
        raise ModelError(f"image_min_tokens is {fewest_rows}, more than image_max_tokens, {rows}")
    most = rows * factor**2 or max(most, fewest_rows * factor**2)
    return fewest_rows * factor**2 or min(least, most), most


def folded(
    g: GraphBuilder, x: Tensor, name: str, merge: int, n_rows: int, n_out: int | None = None, partial: bool = False
) -> Tensor:
    """Return a row per square of ``merge * merge`` patches by a convolution, whose kernel orders channels first.

    ``n_out``: the values of a row; any number unless given. ``partial``: as in ``gathered``.
    """
    n, n_cells = int(x.shape[-1]), merge**2
    stored = g.weight(f"{name}.weight")
    n_out = int(stored.shape[0]) if n_out is None else n_out
    if fixed(stored.shape) not in ((n_out, n * n_cells), (n_out, n, merge, merge)):
        raise ModelError(f"tensor {name}.weight has shape {list(stored.shape)}, for {merge} x {merge} patches")
    by_cell = g.derived(
        f"{name}.cells",
        (n_out, n * n_cells),
        lambda w: w.reshape(n_out, n, n_cells).transpose(0, 2, 1).reshape(n_out, -1),
        stored,
    )
    return g.linear(merged(g, x, merge, n_rows, partial), by_cell, g.find_weight(f"{name}.bias", (n_out,)))


class PatchEncoder(ImageEncoder):
    """A transformer over patches of an image, with attention in both directions.

    A class defines how images become patches, where these have their positions, and what follows the last block.

    Attributes:
        rotation: rotary positions of queries and keys by the input ``places``; None without them.
        reads_pairs: patches have a second input, ``next_patches``, those of the next frame of a video.
        known_activation: the activation, if the file does not tell: gelu_erf is gelu by the error function.
        needs_gates: every feed-forward has a gate; else it has one where the file has its matrix.
    """

    rotation: Rotation | None = None
    reads_pairs = False
    known_activation: Literal["", "gelu", "gelu_erf", "quick", "silu"] = ""
    needs_gates = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.n_embd = hparams.positive("embedding_length")
        self.n_head = hparams.positive("attention.head_count")
        self.n_head_kv = hparams.get_int("attention.head_count_kv", self.n_head)
        self.eps = hparams.number("attention.layer_norm_epsilon")
        self.patch_size = hparams.positive("patch_size")
        self.mean, self.std = (self._channels(key) for key in ("image_mean", "image_std"))
        self.head_dim = hparams.get_int("attention.head_dim", 0)
        if not self.head_dim and self.n_embd % self.n_head:
            raise hparams.wrong("attention.head_count", f"is {self.n_head}, which does not divide {self.n_embd}")
        if self.head_dim < 0 or self.n_head_kv < 1 or self.n_head % self.n_head_kv:
            raise hparams.wrong("attention.head_count_kv", f"is {self.n_head_kv}, for {self.n_head} heads")
        self.head_dim = self.head_dim or self.n_embd // self.n_head
        self.score_scale = self.head_dim**-0.5
        self.n_run = self.n_layer  # blocks that are computed

    def _channels(self, key: str) -> list[float]:
        values = [float(value) for value in self.hparams.per_layer(key, 3)]
        if not all(map(math.isfinite, values)) or (key == "image_std" and 0.0 in values):
            raise self.hparams.wrong(key, f"is {values}, expected three finite numbers")
        return values

    def table_side(self, unit: int, most: int = 256) -> int:
        """Return the side of the table of positions, in cells of ``unit`` pixels a side."""
        side = self.hparams.positive("image_size") // unit
        if not 0 < side <= most:
            raise self.hparams.wrong("image_size", f"has {side} patches a side, expected 1 to {most}")
        return side

    def patch_embeddings(self, g: GraphBuilder) -> Tensor:
        """Return ``[t, n_embd]``: the convolution over patches as a product with each whole patch.

        Encoders of video have a second kernel for a second frame, which is the same in an image.
        """
        n_values = 3 * self.patch_size**2
        patches = g.input("patches", (N_TOKENS, n_values))
        self.reads_pairs = self.sees_videos and g.find_weight("v.patch_embd.weight.1") is not None
        products: list[Tensor] = []
        for name in ("v.patch_embd.weight", "v.patch_embd.weight.1"):
            kernel = g.find_weight(name) if products else g.weight(name)
            if kernel is not None:
                if fixed(kernel.shape) not in ((self.n_embd, 3, *[self.patch_size] * 2), (self.n_embd, n_values)):
                    shape = [self.n_embd, 3, self.patch_size, self.patch_size]
                    raise ModelError(f"tensor {name} has shape {list(kernel.shape)}, but the model needs {shape}")
                flat = g.derived(f"{name}.flat", (self.n_embd, n_values), lambda w: w.reshape(len(w), -1), kernel)
                bias = None if products else g.find_weight("v.patch_embd.bias")
                frame = g.input("next_patches", (N_TOKENS, n_values)) if products and self.reads_pairs else patches
                products.append(g.linear(frame, flat, bias))
        return functools.reduce(Tensor.__add__, products)

    def blocks(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return ``x [t, n_embd]`` after the blocks, each of which is passed to ``after_block``."""
        for i in range(self.n_run):
            with g.layer(i):
                blk = f"v.blk.{i}."
                y = self._attention(g, self.norm(g, x, f"{blk}ln1"), i)
                x = x + self._scaled(g, self._normed(g, y, f"{blk}attn_post_norm"), f"{blk}ls1")
                y = self.feed_forward(g, self.norm(g, x, f"{blk}ln2"), blk)
                x = x + self._scaled(g, self._normed(g, y, f"{blk}ffn_post_norm"), f"{blk}ls2")
                self.after_block(g, x, i)
                x = self.following(g, x, i)
        return x

    def following(self, g: GraphBuilder, x: Tensor, i: int) -> Tensor:
        """Return what follows the result of block ``i``."""
        return x

    def after_block(self, g: GraphBuilder, x: Tensor, i: int) -> None:
        """Receive the result of block ``i``."""

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Return LayerNorm, or RMSNorm of a tensor without bias."""
        has_bias = g.find_weight(f"{name}.bias") is not None
        return (blocks.layer_norm if has_bias else blocks.rms_norm)(g, x, name, self.eps)

    def rotated(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return queries or keys ``[t, heads, d]`` with their positions."""
        if self.rotation is None:
            return x
        rotation = self.rotation
        where = g.input("places", (N_TOKENS, 2), "i32")
        return g.rope(x, where, freqs=rotation.freqs, neox=rotation.neox, axes=rotation.axes)

    def values(self, g: GraphBuilder, v: Tensor) -> Tensor:
        """Return the values ``[t, heads, d]`` to which a block attends."""
        return v

    def linear(self, g: GraphBuilder, x: Tensor, name: str, n_out: int) -> Tensor:
        """Return a linear map of a block."""
        return blocks.linear(g, x, name, n_out)

    def attend(self, g: GraphBuilder, q: Tensor, k: Tensor, v: Tensor, i: int) -> Tensor:
        """Return the result ``[t, heads, d]`` of attention in block ``i``."""
        mask, sinks = self.mask(g, i), self.sinks(g, i)
        return g.attention(q, k, v, scale=self.score_scale, causal=False, cache=False, mask=mask, sinks=sinks)

    def mask(self, g: GraphBuilder, i: int) -> Tensor | None:
        """Return what is added to the scores of block ``i``: a value per pair of patches."""
        return None

    def sinks(self, g: GraphBuilder, i: int) -> Weight | None:
        """Return the score by head of block ``i`` that takes a share of attention and gives nothing."""
        return None

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        """Return the feed-forward of a block."""
        # Older files have the names of both matrices exchanged.
        first = g.weight(f"{blk}ffn_up.weight")
        names = ("ffn_up", "ffn_down") if first.shape[1] == self.n_embd else ("ffn_down", "ffn_up")
        if first.shape[0] == self.n_embd and first.shape[0] == first.shape[1]:
            names = ("ffn_up", "ffn_down")
        n_ff = int(g.weight(f"{blk}{names[0]}.weight").shape[0])  # some files have a wrong feed_forward_length
        up = self.linear(g, x, blk + names[0], n_ff)
        if not self.needs_gates and g.find_weight(f"{blk}ffn_gate.weight") is None:
            y = self.activation(g, up)
        else:
            y = self.gated(g, self.linear(g, x, f"{blk}ffn_gate", n_ff), up)
        return self.linear(g, y, blk + names[1], self.n_embd)

    def _scaled(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        scale = g.find_weight(f"{name}.weight", (self.n_embd,))
        return x if scale is None else x * scale

    def _normed(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Return ``x`` by its norm, if the file has one: of heads ``[t, heads, d]`` each, or all together."""
        weight = g.find_weight(f"{name}.weight")
        if weight is None:
            return x
        if len(x.shape) == 3 and weight.shape[-1] != x.shape[-1]:
            return blocks.norm_all_heads(g, x, name, self.norm)
        return self.norm(g, x, name)

    def _attention(self, g: GraphBuilder, x: Tensor, i: int) -> Tensor:
        blk = f"v.blk.{i}."
        counts = (self.n_head, self.n_head_kv, self.n_head_kv)
        parts = zip(self._qkv(g, x, blk, counts), counts, strict=True)
        q, k, v = (part.reshape(N_TOKENS, n, self.head_dim) for part, n in parts)
        q, k = (self.rotated(g, self._normed(g, y, f"{blk}attn_{of}_norm")) for y, of in ((q, "q"), (k, "k")))
        y = self.attend(g, q, k, self.values(g, v), i)
        return self.linear(g, y.reshape(N_TOKENS, self.n_head * self.head_dim), f"{blk}attn_out", self.n_embd)

    def _qkv(self, g: GraphBuilder, x: Tensor, blk: str, counts: tuple[int, int, int]) -> list[Tensor]:
        sizes = [n * self.head_dim for n in counts]
        if g.find_weight(f"{blk}attn_qkv.weight") is None:
            names = ("attn_q", "attn_k", "attn_v")
            return [self.linear(g, x, blk + name, n) for name, n in zip(names, sizes, strict=True)]
        joined = self.linear(g, x, f"{blk}attn_qkv", sum(sizes))
        ends = (0, sizes[0], sizes[0] + sizes[1], sum(sizes))
        return [g.slice(joined, start, end) for start, end in itertools.pairwise(ends)]

    def gated(self, g: GraphBuilder, gate: Tensor, up: Tensor) -> Tensor:
        """Return the hidden values of a feed-forward with a gate."""
        return self.activation(g, gate) * up

    def activation(self, g: GraphBuilder, x: Tensor) -> Tensor:
        """Return gelu, silu or, by default, the quick form of gelu, ``x * sigmoid(1.702 x)``."""
        kind = self.known_activation or self.hparams.get_str("activation")
        if kind == "gelu_erf":
            return g.gelu_erf(x)
        if kind == "quick":
            return x * g.sigmoid(x * 1.702)
        return g.gelu(x) if kind == "gelu" else g.silu(x)

    def perceptron(self, g: GraphBuilder, x: Tensor, first: str, second: str) -> Tensor:
        """Return two linear maps with gelu between them; the first keeps the width unless its tensor is wider."""
        return self.projected(g, blocks.linear(g, x, first), second)

    def projected(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Return a linear map of gelu to the width of the language model."""
        return blocks.linear(g, g.gelu_erf(x), name, self.hparams.positive("projection_dim"))


class ViT(PatchEncoder):
    """Square images of one size with learned positions."""

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.image_size = hparams.positive("image_size")
        if self.image_size > MOST_SIDE:
            raise hparams.wrong("image_size", f"is {self.image_size}, expected at most {MOST_SIDE} pixels")
        self.side = self.table_side(self.patch_size)
        self.n_rows = self.side**2

    def positions(self, g: GraphBuilder) -> Tensor:
        return g.embedding(g.weight("v.position_embd.weight", (self.n_rows, self.n_embd)), g.positions)

    def with_class(self, g: GraphBuilder, x: Tensor, kinds: str = "kinds") -> Tensor:
        """Return embeddings ``x [t, n_embd]`` with the class token in the first row, which is zero in ``patches``.

        The input ``kinds`` is 0 for this row and 1 for the others. A bias of the patches is taken off from it.
        """
        token, bias = g.weight("v.class_embd", (self.n_embd,)), g.find_weight("v.patch_embd.bias")
        of = [token] if bias is None else [token, bias]
        table = g.derived("v.class_embd.rows", (2, self.n_embd), _class_rows, *of)
        return x + g.embedding(table, g.input(kinds, (N_TOKENS,), "i32"))


def among(g: GraphBuilder, x: Tensor, kinds: str, stored: Sequence[Weight]) -> Tensor:
    """Return the rows ``x [t, n]`` of kind 0, and in place of those of kind ``i`` the ``i``-th stored row.

    ``kinds``: name of the input.
    """
    n_rows, n = x.shape
    of_row, n_kinds = g.input(kinds, (str(n_rows),), "i32"), 1 + len(stored)
    table = g.derived(f"{kinds}.rows", (n_kinds, int(n)), _with_zeros, *stored)
    keep = g.constant(f"{kinds}.keep", np.eye(n_kinds, 1, dtype=np.float32))
    return x * g.embedding(keep, of_row) + g.embedding(table, of_row)


def _with_zeros(*rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.stack([0 * rows[0].reshape(-1), *(row.reshape(-1) for row in rows)])


def _class_rows(token: NDArray[np.float32], bias: NDArray[np.float32] | float = 0.0) -> NDArray[np.float32]:
    return np.stack([token - bias, 0 * token])


def class_inputs(patches: NDArray[np.float32]) -> dict[str, NDArray[np.float32] | NDArray[np.int32]]:
    """Return the inputs of patches behind a class token."""
    n = len(patches) + 1
    return {
        "patches": np.concatenate([np.zeros_like(patches[:1]), patches]),
        "kinds": np.minimum(np.arange(n, dtype=np.int32), 1),
    }
