"""The encoder of Segment Anything (Kirillov et al. 2023, arXiv:2304.02643), as DeepSeek-OCR has it.

Blocks attend within windows, a few to the whole image. A score has two more terms, by the distance of both patches in
rows and in columns: ``q . R[row - other row] + q . C[column - other column]``. They are part of the product of longer
queries and keys: a query brings its term for each row and each column, a key a 1 at its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, ModelError, Tensor, fixed
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import HIDDEN
from pumice_architectures.vision.convolution import convolved, tap_inputs
from pumice_architectures.vision.interpolation import resampling, taps
from pumice_architectures.vision.pixels import Pixels, patches

Inputs = dict[str, NDArray[np.float32] | NDArray[np.int32]]
SIDE = 64  # most patches a side
WHOLE_BLOCKS = (2, 5, 8, 11)  # that attend to the whole image
EPSILON = 1e-6
UNIT = 8  # of the values of a head


class Sam:
    """The encoder for images of a few sizes, with convolutions behind it that make a row of 4 x 4 patches.

    Rows are those of one window after the other; windows over the edge have empty rows.

    Attributes:
        shares: sides of the images, as shares of the largest one.
        side: patches a side of the largest image; read from the table of positions.
        patch_size: pixels a side of a patch; read from the kernel of patches.
        width: values of a resulting row; read from the last kernel.
    """

    def __init__(self, hparams: HParams, shares: Sequence[float]) -> None:
        self.n_layer, self.n_head = hparams.positive("sam.block_count"), hparams.positive("sam.head_count")
        self.n_embd, self.window = hparams.positive("sam.embedding_length"), hparams.positive("window_size", SIDE)
        if self.n_embd % (UNIT * self.n_head):
            raise hparams.wrong("sam.head_count", f"is {self.n_head}, for {self.n_embd} values; heads need 8 or more")
        self.head_dim = self.n_embd // self.n_head
        self.shares = tuple(shares)
        self.n_rows = (-(-SIDE // self.window) * self.window) ** 2
        self.side = self.patch_size = self.width = 0

    @property
    def sides(self) -> list[int]:
        """Patches a side of each size of images."""
        return [int(self.side * share) for share in self.shares]

    def size(self, share: float) -> int:
        """Return the pixels a side of images whose side is that share of the largest one."""
        return int(self.side * share) * self.patch_size

    def n_out(self, side: int) -> int:
        """Return the rows a side that result from ``side`` patches."""
        return math.ceil(math.ceil(side / 2) / 2)

    def inputs(self, pixels: Pixels, mean: Sequence[float], std: Sequence[float]) -> Inputs:
        """Return the inputs of a square image in one of the sizes."""
        side, window = pixels.shape[0] // self.patch_size, self.window
        number, padded = self.sides.index(side), -(-side // window) * window
        cells = np.arange(padded**2).reshape(padded // window, window, -1, window).swapaxes(1, 2).reshape(-1)
        row, column = np.divmod(cells, padded)
        inside = (row < side) & (column < side)
        place = np.where(inside, row * side + column, 0)
        order = np.zeros(side**2, np.int32)  # the row of each patch
        order[place[inside]] = np.flatnonzero(inside)
        neck = tap_inputs("neck", (side, side), 3)
        half = -(-side // 2)
        return {
            "patches": patches(pixels, self.patch_size, mean, std)[place] * inside[:, None].astype(np.float32),
            "inside": inside[:, None].astype(np.float32),
            "place": (place + sum(n**2 for n in self.sides[:number])).astype(np.int32),
            **self._relative("near", (row % window, column % window), [window], 0),
            **self._relative("far", (row, column), self.sides, number, inside),
            **{name: order[ids] if ids.dtype == np.int32 else ids for name, ids in neck.items()},
            **tap_inputs("half", (side, side), 3, 2),
            **tap_inputs("quarter", (half, half), 3, 2),
        }

    def _relative(
        self,
        name: str,
        places: tuple[NDArray[np.int64], NDArray[np.int64]],
        sides: Sequence[int],
        number: int,
        inside: NDArray[np.bool_] | None = None,
    ) -> Inputs:
        """Return the inputs of ``_attention``: tables of each row, and what its key has besides.

        ``sides`` have tables, and the places are of the one at ``number``; ``inside``: rows that others attend to.
        """
        n_keys, first = _padded(max(sides)), sum(sides[:number])
        of_keys = [(np.arange(n_keys) == place[:, None]).astype(np.float32) for place in places]
        visible = np.ones(len(places[0]), bool) if inside is None else inside
        hidden = np.zeros((len(visible), UNIT), np.float32)
        hidden[:, 0] = np.where(visible, np.float32(0), HIDDEN)
        within = [np.minimum(place, sides[number] - 1) + first for place in places]
        tables = [np.repeat(place[:, None], self.n_head, 1).astype(np.int32) for place in within]
        return {
            f"{name}.rows": tables[0],
            f"{name}.columns": tables[1],
            f"{name}.keys": np.concatenate([*of_keys, hidden], 1)[:, None],
        }

    def build(self, g: GraphBuilder) -> Tensor:
        """Trace the encoder, and return a row of each 4 x 4 patches, row by row."""
        x = self._embedded(g)
        for i in range(self.n_layer):
            with g.layer(i):
                x = self._block(g, x, i)
        x = blocks.layer_norm(g, convolved(g, x, "", "v.sam.neck.0", N_TOKENS), "v.sam.neck.1", EPSILON)
        x = convolved(g, x, "neck", "v.sam.neck.2", g.size("n_patches", SIDE**2))
        x = blocks.layer_norm(g, x, "v.sam.neck.3", EPSILON)
        x = convolved(g, x, "half", "v.sam.net_2", g.size("n_half", SIDE**2 // 4))
        x = convolved(g, x, "quarter", "v.sam.net_3", g.size("n_quarter", SIDE**2 // 16))
        self.width = blocks.width(x)
        return x

    def _embedded(self, g: GraphBuilder) -> Tensor:
        kernel, table = g.weight("v.sam.patch_embd.weight"), g.weight("v.sam.pos_embd.weight")
        shape, n = fixed(kernel.shape), self.n_embd
        if len(shape) != 4 or shape[:2] != (n, 3) or shape[2] != shape[3] or not 0 < shape[2] <= SIDE:
            raise ModelError(f"tensor v.sam.patch_embd.weight has shape {list(shape)}, expected [{n}, 3, p, p]")
        self.patch_size = shape[2]
        shape = fixed(table.shape)[-3:]
        if len(shape) != 3 or shape[0] != shape[1] or not 1 < shape[0] <= SIDE or shape[2] != n:
            raise ModelError(f"tensor v.sam.pos_embd.weight has shape {list(shape)}, expected [s, s, {n}]")
        self.side = shape[0]
        n_values = 3 * self.patch_size**2
        flat = g.derived("v.sam.patch_embd.flat", (n, n_values), lambda w: w.reshape(n, -1), kernel)
        x = g.linear(g.input("patches", (N_TOKENS, n_values)), flat, g.weight("v.sam.patch_embd.bias", (n,)))
        positions = g.derived(
            "v.sam.pos_embd.sizes",
            (sum(n**2 for n in self.sides), n),
            functools.partial(resized_tables, sides=self.sides),
            table,
        )
        return x + g.embedding(positions, g.input("place", (N_TOKENS,), "i32"))

    def _block(self, g: GraphBuilder, x: Tensor, i: int) -> Tensor:
        blk = f"v.sam.blk.{i}."
        y = blocks.layer_norm(g, x, f"{blk}pre_ln", EPSILON) * g.input("inside", (N_TOKENS, 1))
        x = x + self._attention(g, y, blk, i in WHOLE_BLOCKS)
        y = blocks.layer_norm(g, x, f"{blk}post_ln", EPSILON)
        y = g.gelu_erf(blocks.linear(g, y, f"{blk}mlp.lin1"))
        return x + blocks.linear(g, y, f"{blk}mlp.lin2", self.n_embd)

    def _attention(self, g: GraphBuilder, x: Tensor, blk: str, is_whole: bool) -> Tensor:
        n, heads, d = self.n_embd, self.n_head, self.head_dim
        joined = blocks.linear(g, x, f"{blk}attn.qkv", 3 * n)
        q, k, v = (g.slice(joined, i * n, (i + 1) * n).reshape(N_TOKENS, heads, d) for i in range(3))
        name, sides = ("far", self.sides) if is_whole else ("near", [self.window])
        n_keys = _padded(max(sides))
        ones = g.scale(g.slice(q, 0, UNIT), 0.0, 1.0)
        query = q * d**-0.5
        for axis, letter in (("rows", "h"), ("columns", "w")):
            table = g.weight(f"{blk}attn.pos_{letter}.weight")
            if len(table.shape) != 2 or table.shape[1] != d:
                raise ModelError(f"tensor {blk}attn.pos_{letter}.weight has shape {list(table.shape)}")
            of_rows = g.derived(
                f"{blk}attn.pos_{letter}.tables",
                (sum(sides), n_keys, d),
                functools.partial(relative_tables, sides=sides, n_keys=n_keys),
                table,
            )
            ids = g.input(f"{name}.{axis}", (N_TOKENS, heads), "i32")
            query = g.concat(query, g.mul_mat_id(q, of_rows, ids))
        key = g.concat(k, g.input(f"{name}.keys", (N_TOKENS, 1, 2 * n_keys + UNIT)))
        chunk = 0 if is_whole else self.window**2
        y = g.attention(g.concat(query, ones), key, v, scale=1.0, causal=False, cache=False, chunk=chunk)
        return blocks.linear(g, y.reshape(N_TOKENS, n), f"{blk}attn.out", n)


def _padded(n: int) -> int:
    return -(-n // UNIT) * UNIT


def resized_tables(table: NDArray[np.float32], sides: Sequence[int]) -> NDArray[np.float32]:
    """Return the rows of a table ``[s, s, n]`` of positions in each of some sizes, one size after the other."""
    square = table.reshape(table.shape[-3:])
    parts = []
    for side in sides:
        shares = resampling(len(square), side, cubic=True)
        resized = square if side == len(square) else np.einsum("ai,bj,ijn->abn", shares, shares, square, optimize=True)
        parts.append(resized.reshape(side**2, -1))
    return np.concatenate(parts).astype(np.float32)


def relative_tables(table: NDArray[np.float32], sides: Sequence[int], n_keys: int) -> NDArray[np.float32]:
    """Return ``[sum of sides, n_keys, d]``: what a query at each place of a side multiplies for each other place.

    ``table [2 s - 1, d]``: by distance, linearly interpolated for other sides than ``s``.
    """
    parts = []
    for side in sides:
        rows, shares = taps(len(table), 2 * side - 1, "linear")
        by_distance = table if len(table) == 2 * side - 1 else (table[rows] * shares[..., None]).sum(1)
        place = np.arange(side)
        of_places = np.zeros((side, n_keys, table.shape[1]), np.float32)
        of_places[:, :side] = by_distance[place[:, None] - place + side - 1]
        parts.append(of_places)
    return np.concatenate(parts)
