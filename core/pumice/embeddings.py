"""Embeddings of images, sounds and videos in prompts: rows in place of tokens, which an engine may keep."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from pumice.architecture import MediaKind

Count = Annotated[int, Meta(ge=0, le=2**53)]


@dataclass(frozen=True, eq=False)
class KeptMedia:
    """An encoded image or sound whose rows stay with the engine that encoded it until its client drops this object.

    ``id``: that of the command.
    """

    id: int


@dataclass(frozen=True)
class KeptRows:
    """Rows of a part of kept media: ``n_rows`` of ``width`` values, from ``first`` on to its last one.

    ``part``: its number in the answer.
    """

    media: KeptMedia
    part: int
    n_rows: int
    width: int
    first: int = 0


@dataclass(frozen=True)
class Embeddings:
    """Rows ``[n, width]`` in place of consecutive tokens of a prompt.

    Attributes:
        rows: None if the engine keeps them.
        grid: their rows and columns, for models whose positions have two dimensions; None if they are one row.
        kind: what they stand for.
        times: places in time of the frames of a video, each of which has such a grid.
        key: as many rows with an equal key are equal, and finite; empty if nothing is known about them.
        block: if above 0, positions of a block of the prompt, at whose last place row number ``block - 1`` belongs.
            The rows before it fill the block; ``at`` leaves out those for which there is no place.
        start: position of the first row in the prompt.
        kept: rows that the engine keeps.
    """

    rows: NDArray[np.float32] | None
    grid: tuple[Count, Count] | None = None
    kind: MediaKind = "image"
    times: tuple[Count, ...] = ()
    key: bytes = b""
    block: Count = 0
    start: Count = 0
    kept: KeptRows | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.rows) if self.rows is not None else self.kept.n_rows if self.kept else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return self.rows.nbytes if self.rows is not None else 4 * self.kept.n_rows * self.kept.width if self.kept else 0

    def at(self, start: int) -> Embeddings:
        """Return the embeddings whose first row has the position ``start`` in a prompt."""
        n = start % self.block if self.block else 0
        rows = None if self.rows is None else self.rows[n:]
        kept = self.kept and replace(self.kept, n_rows=self.kept.n_rows - n, first=self.kept.first + n)
        return replace(self, rows=rows, kept=kept, block=0 if n else self.block, start=start)
