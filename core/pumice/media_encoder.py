"""The contract of media encoders: from an image or a sound to rows of embeddings among the tokens of a prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from pumice.architecture import HParams, MediaKind
from pumice.media.videos import VideoForm, VideoPlan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pumice.graph import GraphBuilder, Tensor

Pixels: TypeAlias = "NDArray[np.uint8]"
Frames: TypeAlias = "NDArray[np.uint8]"
Samples: TypeAlias = "NDArray[np.float32]"
Inputs: TypeAlias = "Mapping[str, NDArray[Any]]"


@dataclass(frozen=True)
class MediaPiece:
    """A part of an image or a sound that one run of the graph encodes.

    Attributes:
        inputs: the inputs of the run by name; the first dimension of ``patches`` is the number of rows of the step.
    """

    inputs: Inputs


@dataclass(frozen=True)
class SoundPiece(MediaPiece):
    """A part of a sound.

    Attributes:
        n_rows: number of the resulting embeddings.
    """

    n_rows: int


@dataclass(frozen=True)
class ImagePiece(MediaPiece):
    """A part of an image.

    Attributes:
        grid: rows and columns of the resulting embeddings, for models whose positions have two dimensions; None if
            they follow each other like tokens.
        row_end: text between the rows of the grid.
        n_before, n_after: rows before and after those of the grid, whose positions are like those of tokens.
        later: inputs of the encoder's further stages; the first dimension of ``row_ids`` is the number of rows of the
            step.
        block: that of ``Embeddings``.
    """

    grid: tuple[int, int] | None = None
    row_end: str = ""
    n_before: int = 0
    n_after: int = 0
    later: tuple[Inputs, ...] = ()
    block: int = 0


@dataclass(frozen=True)
class JoinedPieces:
    """Pieces of an image whose rows become one sequence of rows.

    Attributes:
        pieces: the pieces.
        order: int32 ``[n]``: which of the pieces' rows, one piece after the other, each resulting row is.
        grid: rows and columns of each frame of a video, for models whose positions have dimensions.
        times: places in time of the frames from the first one on; empty for an image.
    """

    pieces: Iterable[ImagePiece]
    order: NDArray[np.int32]
    grid: tuple[int, int] | None = None
    times: tuple[int, ...] = ()


@dataclass(frozen=True)
class MediaStage:
    """A further graph of an encoder, for attention among other rows than the patches.

    Attributes:
        n_rows: maximum rows of the graph.
        build: traces the graph, like ``MediaEncoder.build``. The input ``rows`` is the result of the stage before.
    """

    n_rows: int
    build: Callable[[GraphBuilder], Tensor]


class MediaEncoder(ABC):
    """The encoder and projector of a projector file (mmproj) whose ``clip.projector_type`` it is registered for.

    It is an ``ImageEncoder`` or an ``AudioEncoder``. ``__init__`` reads and checks the file's keys, ``clip.vision`` or
    ``clip.audio``; ``prepare`` needs no weights.

    Attributes:
        kind: what it encodes.
        width: values of a row, which is the width of the language model.
        n_rows: maximum rows of a piece in the graph, such as patches of a tile.
        sizes: maxima of further named sizes of the graph's inputs.
        stages: graphs that continue with the result of ``build``'s.
        differing_tensors: optional tensors that only some blocks have, by names behind the number of the block.
    """

    stages: Sequence[MediaStage] = ()
    differing_tensors: ClassVar[Sequence[str]] = ()
    kind: ClassVar[MediaKind] = "image"  # for plugins from before there were sounds

    def __init__(self, hparams: HParams) -> None:
        self.hparams = hparams
        self.n_layer = hparams.count("block_count", 0, low=0)
        self.width = hparams.positive("projection_dim")

    n_rows: int

    @abstractmethod
    def build(self, g: GraphBuilder) -> Tensor:
        """Trace the encoder from ``prepare``'s inputs, and return float32 rows ``[n, width]``."""


class ImageEncoder(MediaEncoder):
    """An encoder of images.

    Attributes:
        bounds_tokens: ``image_min_tokens`` and ``image_max_tokens`` are among its keys, and bound its images.
        sees_videos: ``plan_video`` and ``prepare_video`` are there.
    """

    kind: ClassVar[MediaKind] = "image"
    bounds_tokens: ClassVar[bool] = False
    sees_videos: ClassVar[bool] = False

    @abstractmethod
    def prepare(self, pixels: Pixels) -> Sequence[str | ImagePiece | JoinedPieces]:
        """Return the parts of the prompt that stand for an image ``[height, width, 3]``, in order.

        A part is text, whose special tokens are read as such, a piece of the image, or several that are joined.
        """

    def plan_video(self, video: VideoForm) -> VideoPlan:
        """Return which frames of a video are wanted, and in which size. Called only with ``sees_videos``."""
        raise NotImplementedError

    def prepare_video(self, video: VideoForm, frames: Frames) -> Iterable[str | ImagePiece | JoinedPieces]:
        """Return the parts of the prompt that stand for a video, from the planned frames ``[n, height, width, 3]``.

        Pieces are best made one by one, as they take memory. Called only with ``sees_videos``.
        """
        raise NotImplementedError


class AudioEncoder(MediaEncoder):
    """An encoder of sounds.

    Attributes:
        rate: samples a second of the sounds, 16,000 or 24,000.
    """

    kind: ClassVar[MediaKind] = "audio"
    rate: ClassVar[int] = 16_000

    @abstractmethod
    def prepare(self, samples: Samples) -> Iterable[str | SoundPiece]:
        """Return the parts of the prompt that stand for a sound ``[n]`` of values from -1 to 1, in order.

        A part is text, whose special tokens are read as such, or a piece of the sound. Pieces of long sounds are
        best made one by one, as they take memory.
        """

    @abstractmethod
    def count_rows(self, n_samples: int) -> int:
        """Return the rows of all pieces of a sound, so that one that does not fit is refused before it is prepared."""
