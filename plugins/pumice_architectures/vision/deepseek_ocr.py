"""DeepSeek-OCR (Wei et al. 2025, arXiv:2510.18234) and DeepSeek-OCR 2: two encoders see tiles and the whole."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import HIDDEN, ImagePiece, JoinedPieces, MediaStage, mask_width
from pumice_architectures.vision.pixels import Pixels, check_ratio, resize, tile_grid, tiles
from pumice_architectures.vision.sam import SIDE, Inputs, Sam, resized_tables
from pumice_architectures.vision.vit import PatchEncoder, Rotation, among, falling

GREY = 127  # around an image
MOST_TILES = 64
MOST_ROWS = SIDE**2 // 16  # of SAM


class AfterSam(PatchEncoder):
    """The whole image on a grey square, and tiles if it is larger than one; a second encoder reads the rows of SAM.

    Attributes:
        tile: side of a tile, as a share of the square.
        usual_tiles: most tiles of an image, if the file does not say it.
        n_more: embeddings besides the rows of a piece.
    """

    tile: float
    usual_tiles: int
    n_more: int

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.sam = Sam(hparams, (1.0, self.tile))
        self.n_rows = self.sam.n_rows
        self.fewest = hparams.get_int("preproc_min_tiles", 2)
        self.most = hparams.get_int("preproc_max_tiles", self.usual_tiles)
        if not 0 < self.fewest <= self.most <= MOST_TILES:
            raise hparams.wrong("preproc_max_tiles", f"is {self.most}, expected {self.fewest} to {MOST_TILES}")
        self.stages = (MediaStage(2 * MOST_ROWS, self.build_second),)

    def build(self, g: GraphBuilder) -> Tensor:
        return self.sam.build(g)

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece | JoinedPieces]:
        check_ratio(pixels)
        height, width = pixels.shape[:2]
        side = self.sam.size(self.tile)
        cells: list[Pixels] = []
        columns = rows = 0
        if max(height, width) > side:
            columns, rows = tile_grid(height, width, side, self.fewest, self.most)
            cells = tiles(resize(pixels, columns * side, rows * side, "bicubic"), side)
        pieces = [self._piece(cell) for cell in (*cells, self._square(pixels))]
        return [JoinedPieces(pieces, self.order(rows, columns)), "\n"]

    def _square(self, pixels: Pixels) -> Pixels:
        """Return the whole image in the middle of a square."""
        size, (height, width) = self.sam.size(1.0), pixels.shape[:2]
        scale = size / max(height, width)
        inner = max(round(height * scale), 1), max(round(width * scale), 1)
        top, left = (self.margin(size - n) for n in inner)
        square = np.full((size, size, 3), GREY, np.uint8)
        square[top : top + inner[0], left : left + inner[1]] = resize(pixels, inner[1], inner[0], "bicubic")
        return square

    def margin(self, n: int) -> int:
        """Return how many of ``n`` free pixels come before the image."""
        return n // 2

    def _piece(self, square: Pixels) -> ImagePiece:
        side = square.shape[0] // self.sam.patch_size
        return ImagePiece(self.sam.inputs(square, self.mean, self.std), later=(self.second(self.sam.n_out(side)),))

    def order(self, rows: int, columns: int) -> NDArray[np.int32]:
        """Return the rows of an image of all pieces' rows; the pieces are ``rows * columns`` tiles, and the whole."""
        raise NotImplementedError

    def second(self, side: int) -> Inputs:
        """Return the inputs of the second encoder for ``side * side`` rows of SAM."""
        raise NotImplementedError

    def build_second(self, g: GraphBuilder) -> Tensor:
        """Trace the second encoder."""
        raise NotImplementedError

    def from_sam(self, g: GraphBuilder) -> Tensor:
        """Return the rows of SAM in the order of the second encoder's, with zeros for its own."""
        rows = g.input("rows", (g.size("n_sam", MOST_ROWS), self.sam.width))
        return g.get_rows(rows, g.input("row_ids", (N_TOKENS,), "i32")) * g.input("is_image", (N_TOKENS, 1))

    def ended(self, g: GraphBuilder, x: Tensor, names: tuple[str, ...]) -> Tensor:
        """Return the projected rows ``x``, then embeddings of the model."""
        size = g.size("n_ended", MOST_ROWS + len(names))
        x = g.get_rows(blocks.linear(g, x, "mm.model.fc", self.width), g.input("ended_ids", (size,), "i32"))
        return among(g, x, "kinds", [g.weight(name) for name in names])

    def end_inputs(self, n: int) -> Inputs:
        """Return the inputs of ``ended`` for ``n`` rows."""
        kinds = np.concatenate([np.zeros(n, np.int32), np.arange(1, 1 + self.n_more, dtype=np.int32)])
        ids = np.where(kinds, 0, np.arange(len(kinds))).astype(np.int32)
        return {"ended_ids": ids, "kinds": kinds}


class DeepSeekOCR(AfterSam):
    """CLIP behind SAM, and the rows of both side by side. An embedding ends each line, another the image."""

    tile = 640 / 1024
    usual_tiles = 9
    n_more = 2
    known_activation = "quick"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.eps = 1e-5  # files have that of SAM

    def margin(self, n: int) -> int:
        return round(n / 2)

    def order(self, rows: int, columns: int) -> NDArray[np.int32]:
        whole, tile = (self.sam.n_out(side) for side in self.sam.sides)
        n = tile**2 + self.n_more
        y, x = np.indices((rows * tile, columns * tile))
        lines = n * (y // tile * columns + x // tile) + y % tile * tile + x % tile
        parts = [np.pad(lines, ((0, 0), (0, 1)), constant_values=tile**2).reshape(-1)] if rows else []
        first = n * rows * columns
        lines = first + np.arange(whole**2).reshape(whole, whole)
        parts.append(np.pad(lines, ((0, 0), (0, 1)), constant_values=first + whole**2).reshape(-1))
        return np.concatenate([*parts, [first + whole**2 + 1]]).astype(np.int32)

    def second(self, side: int) -> Inputs:
        n, sides = side**2, [self.sam.n_out(n) for n in self.sam.sides]
        is_image = np.minimum(np.arange(n + 1), 1).astype(np.float32)[:, None]
        first = 1 + sum(n**2 for n in sides[: sides.index(side)])
        ids = np.maximum(np.arange(n + 1, dtype=np.int32) - 1, 0)
        place = np.append(0, first + np.arange(n)).astype(np.int32)
        return {
            "row_ids": ids,
            "is_image": is_image,
            "place": place,
            "image_ids": np.arange(1, n + 1, dtype=np.int32),
        } | (self.end_inputs(n))

    def build_second(self, g: GraphBuilder) -> Tensor:
        sides, table = [self.sam.n_out(n) for n in self.sam.sides], g.weight("v.position_embd.weight")
        token = g.weight("v.class_embd", (self.n_embd,))
        positions = g.derived(
            "v.position_embd.sizes",
            (1 + sum(n**2 for n in sides), self.n_embd),
            functools.partial(_class_and_tables, sides=sides),
            table,
            token,
        )
        x = self.from_sam(g) + g.embedding(positions, g.input("place", (N_TOKENS,), "i32"))
        x = self.blocks(g, self.norm(g, x, "v.pre_ln"))
        size = g.size("n_sam", MOST_ROWS)
        x = g.get_rows(x, g.input("image_ids", (size,), "i32"))
        x = g.concat(x, g.input("rows", (size, self.sam.width)))
        return self.ended(g, x, ("v.image_newline", "v.view_seperator"))


def _class_and_tables(table: NDArray[np.float32], token: NDArray[np.float32], sides: list[int]) -> NDArray[np.float32]:
    """Return the class token at its position, then the positions of patches in each size."""
    side = math.isqrt(len(table) - 1)
    return np.concatenate([table[:1] + token, resized_tables(table[1:].reshape(side, side, -1), sides)])


class DeepSeekOCR2(AfterSam):
    """A decoder behind SAM, in which the rows of SAM see each other, and queries see them and earlier queries."""

    tile = 768 / 1024
    usual_tiles = 6
    n_more = 1
    theta = 1000000.0
    known_activation = "silu"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.rotation = Rotation(falling(self.head_dim // 2, self.theta), (0,) * (self.head_dim // 2), neox=True)

    def order(self, rows: int, columns: int) -> NDArray[np.int32]:
        whole, tile = (self.sam.n_out(side) ** 2 for side in self.sam.sides)
        of_tiles = np.arange(rows * columns * (tile + 1)).reshape(-1, tile + 1)[:, :tile].reshape(-1)
        return np.append(of_tiles, of_tiles.size + rows * columns + np.arange(whole + 1)).astype(np.int32)

    def second(self, side: int) -> Inputs:
        n, tile = side**2, self.sam.n_out(self.sam.sides[1]) ** 2
        i = np.arange(2 * n, dtype=np.int32)
        visible = (i < n) | (i <= i[:, None])
        mask = np.zeros((2 * n, mask_width(2 * MOST_ROWS)), np.float32)
        mask[:, : 2 * n] = np.where(visible, np.float32(0), HIDDEN)
        query = np.where(i < n, 0, 1 + i - n + (0 if n == tile else tile))
        inputs: Inputs = {
            "row_ids": (i % n).astype(np.int32),
            "is_image": (i < n).astype(np.float32)[:, None],
            "queries": query.astype(np.int32),
            "places": np.stack([i, i], 1),
            "mask": mask,
            "query_ids": i[n:],
        }
        return inputs | self.end_inputs(n)

    def mask(self, g: GraphBuilder, i: int) -> Tensor:
        return g.input("mask", (N_TOKENS, mask_width(2 * MOST_ROWS)))

    def build_second(self, g: GraphBuilder) -> Tensor:
        whole, tile = (self.sam.n_out(side) ** 2 for side in self.sam.sides)
        tables = [
            g.weight(f"v.resample_query_{of}.weight", (n, self.n_embd)) for of, n in (("768", tile), ("1024", whole))
        ]
        queries = g.derived("v.queries", (1 + tile + whole, self.n_embd), _zero_and_tables, *tables)
        x = self.from_sam(g) + g.embedding(queries, g.input("queries", (N_TOKENS,), "i32"))
        x = self.norm(g, self.blocks(g, x), "v.post_ln")
        x = g.get_rows(x, g.input("query_ids", (g.size("n_sam", MOST_ROWS),), "i32"))
        return self.ended(g, x, ("v.view_seperator",))


def _zero_and_tables(*tables: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.concatenate([0 * tables[0][:1], *tables])
