"""Granite 4 Vision (IBM 2026): windows of SigLIP's rows become a few rows for each of several layers."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import HIDDEN, ImagePiece
from pumice_architectures.vision.llava import Llava
from pumice_architectures.vision.pixels import Pixels, patches
from pumice_architectures.vision.qformer import query_block, query_norm
from pumice_architectures.vision.windows import UNIT, attend

HEAD_DIM = 64  # of the projectors
MOST_STREAMS = 64
MOST_RATIO = 8  # of patches a side to queries a side; published models have 2
EPSILON = 1e-6


class Granite4Vision(Llava):
    """Images become tiles as in LLaVA 1.6. Each projector makes embeddings for a layer of the language model.

    Patches are in the order of windows, whose first rows are also those of the queries.
    """

    def __init__(self, hparams: HParams) -> None:
        super().__init__(HParams({**hparams.metadata, "clip.vision.feature_layer": []}))
        self.window, self.query = (hparams.positive(f"projector.{name}_side") for name in ("window", "query"))
        if self.window % self.query or self.side % self.window or self.window > MOST_RATIO * self.query:
            problem = f"is {self.window}, for {self.query} queries a side and {self.side} patches a side"
            raise hparams.wrong("projector.window_side", problem)
        self.ratio = self.window // self.query
        self.features = hparams.integers("feature_layer")
        self.offsets = hparams.integers("projector.spatial_offsets")
        if not 0 < len(self.features) <= MOST_STREAMS or not all(0 <= i < self.n_layer for i in self.features):
            raise hparams.wrong("feature_layer", f"is {self.features!r:.60}, expected blocks from 0 on")
        n_offsets = self.ratio**2 if self.ratio == 2 else 0
        if len(self.offsets) != len(self.features) or not all(-1 <= i < n_offsets for i in self.offsets):
            raise hparams.wrong("projector.spatial_offsets", f"is {self.offsets!r:.60}, for windows of {self.ratio} x")
        if self.n_embd % HEAD_DIM:
            raise hparams.wrong("embedding_length", f"is {self.n_embd}, which heads of {HEAD_DIM} do not divide")
        if not self.resolutions:
            raise hparams.wrong("image_grid_pinpoints", "is empty, expected the sizes of tiled images")
        self.resolutions = [(height, width) for width, height in self.resolutions]
        self.n_run = max(self.features) + 1
        self.n_rows = self.side**2
        self.n_values = self.width  # of an embedding
        self.width *= len(self.features)
        self.side_out = self.side // self.ratio
        self._has_line_ends = True

    def _piece(self, square: Pixels) -> ImagePiece:
        side, window, query, n = self.side, self.window, self.query, self.window**2
        rows = np.arange(side**2, dtype=np.int32)
        order = rows.reshape(side // window, window, -1, window).swapaxes(1, 2).reshape(-1)
        place = rows % n  # in a window, as a patch and as a query
        is_query = place < query**2
        row, column = np.divmod(np.where(is_query, place, 0), query)
        hidden = np.zeros((len(rows), 1, UNIT), np.float32)
        hidden[~is_query, 0, 0] = HIDDEN
        inputs: dict[str, NDArray[np.float32] | NDArray[np.int32]] = {
            "patches": patches(square, self.patch_size, self.mean, self.std)[order],
            "place": order,
            "in_window": place,
            "query": np.where(is_query, place, 0),
            "hidden": hidden,
        }
        for i in range(self.ratio**2):
            dy, dx = divmod(i, self.ratio)
            cell = (row * self.ratio + dy) * window + column * self.ratio + dx
            inputs[f"cell.{i}"] = (rows - place + cell).astype(np.int32)
        n_windows = side // window
        firsts = n * np.arange(n_windows**2, dtype=np.int32).reshape(n_windows, n_windows)
        queries = np.arange(query**2, dtype=np.int32).reshape(query, query)
        kept = (firsts[:, None, :, None] + queries[None, :, None, :]).reshape(-1)
        inputs["kept"] = np.append(kept, kept[:1])  # the last row is that of the end of a line
        inputs["line_ends"] = np.append(0 * kept, np.ones(1, np.int32))
        return ImagePiece(inputs)

    def build(self, g: GraphBuilder) -> Tensor:
        table = g.weight("v.position_embd.weight", (self.side**2, self.n_embd))
        x = self.patch_embeddings(g) + g.embedding(table, g.input("place", (N_TOKENS,), "i32"))
        self._outputs = {}
        self.blocks(g, x)
        streams = [self._stream(g, i, self._outputs[block + 1]) for i, block in enumerate(self.features)]
        x = functools.reduce(g.concat, streams)
        ends = g.input("line_ends", (self._n_out(g),), "i32")
        keep = g.constant("line_ends.keep", np.array([[1.0], [0.0]], np.float32))
        line_end = g.weight("v.image_newline", (self.n_values,))
        table = g.derived("line_ends.rows", (2, self.width), functools.partial(_ends, n=len(streams)), line_end)
        return x * g.embedding(keep, ends) + g.embedding(table, ends)

    def _n_out(self, g: GraphBuilder) -> str:
        return g.size("n_out", self.side_out**2 + 1)

    def _stream(self, g: GraphBuilder, i: int, x: Tensor) -> Tensor:
        """Return the embeddings of projector ``i`` from the rows of a block."""
        blk, n = f"v.proj_blk.{i}.", self.n_embd
        x = blocks.layer_norm(g, x, f"{blk}norm", EPSILON)
        cells = [g.get_rows(x, g.input(f"cell.{j}", (N_TOKENS,), "i32")) for j in range(self.ratio**2)]
        mean = functools.reduce(Tensor.__add__, cells) * self.ratio**-2
        y = mean if self.offsets[i] < 0 else cells[self.offsets[i]]
        tables = [
            g.derived(f"{blk}{name}.rows", (side**2, n), lambda w: w.reshape(-1, w.shape[-1]), stored)
            for name, side in (("query", self.query), ("img_pos", self.window))
            for stored in [g.weight(f"{blk}{name}", (1, side**2, n))]
        ]
        y = y + g.embedding(tables[0], g.input("query", (N_TOKENS,), "i32"))
        x = x + g.embedding(tables[1], g.input("in_window", (N_TOKENS,), "i32"))

        def among_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attend(g, q, k, v, HEAD_DIM**-0.5, self.window)

        def to_window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return g.attention(q, k, v, scale=HEAD_DIM**-0.5, causal=False, cache=False, chunk=self.window**2)

        y = query_norm(g, y, f"{blk}post_norm")
        y = query_block(g, y, x, blk, n // HEAD_DIM, among_queries, to_window)
        y = g.get_rows(y, g.input("kept", (self._n_out(g),), "i32"))
        return blocks.linear(g, y, f"{blk}linear", self.n_values)


def _ends(row: NDArray[np.float32], n: int) -> NDArray[np.float32]:
    """Return an empty row, and ``n`` times the embedding that ends a line, side by side."""
    whole = np.tile(row, n)
    return np.stack([0 * whole, whole])
