"""The contract of media encoders: from an image to rows of embeddings among the tokens of a prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pumice.architecture import HParams

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pumice.graph import GraphBuilder, Tensor

Pixels: TypeAlias = "NDArray[np.uint8]"
Inputs: TypeAlias = "Mapping[str, NDArray[Any]]"


@dataclass(frozen=True)
class ImagePiece:
    """A part of an image that one run of the graph encodes.

    Attributes:
        inputs: the inputs of the run by name; the first dimension of ``patches`` is the number of rows of the step.
        grid: rows and columns of the resulting embeddings, for models whose positions have two dimensions; None if
            they follow each other like tokens.
        row_end: text between the rows of the grid.
    """

    inputs: Inputs
    grid: tuple[int, int] | None = None
    row_end: str = ""


@dataclass(frozen=True)
class Embeddings:
    """Float32 ``rows [n, width]`` in place of tokens, in a grid of ``(rows, columns)`` unless it is None."""

    rows: NDArray[np.float32]
    grid: tuple[int, int] | None = None


class MediaEncoder(ABC):
    """The encoder and projector of a projector file (mmproj) whose ``clip.projector_type`` it is registered for.

    ``__init__`` reads and checks the file's ``clip.vision`` keys; ``prepare`` needs no weights.

    Attributes:
        width: values of a row, which is the width of the language model.
        n_rows: maximum rows of a piece in the graph, such as patches of a tile.
        sizes: maxima of further named sizes of the graph's inputs.
    """

    def __init__(self, hparams: HParams) -> None:
        self.hparams = hparams
        self.n_layer = hparams.positive("block_count")
        self.width = hparams.positive("projection_dim")

    n_rows: int

    @abstractmethod
    def prepare(self, pixels: Pixels) -> Sequence[str | ImagePiece]:
        """Return the parts of the prompt that stand for an image ``[height, width, 3]``, in order.

        A part is text, whose special tokens are read as such, or a piece of the image.
        """

    @abstractmethod
    def build(self, g: GraphBuilder) -> Tensor:
        """Trace the encoder from ``prepare``'s inputs, and return float32 rows ``[n, width]``."""
