"""A projector file (mmproj): its encoders turn images and sounds into texts and rows of embeddings for prompts."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from pumice.architecture import MediaKind
from pumice.config import Config
from pumice.embeddings import Embeddings
from pumice.engine.media.encoder_steps import EncoderSteps, Part, Rows
from pumice.engine.media.encoders import AUDIO, IMAGE, VIDEO, no_encoder, trace_projector
from pumice.engine.messages import MAX_MEDIA_BYTES, MediaValues
from pumice.errors import ModelError, PromptTooLongError, RequestError
from pumice.gguf import GGUFFile
from pumice.media.videos import VideoForm, VideoPlan
from pumice.media_encoder import (
    AudioEncoder,
    ImageEncoder,
    ImagePiece,
    JoinedPieces,
    MediaEncoder,
    Pixels,
    Samples,
    SoundPiece,
)
from pumice.registry import Registry


class Projector:
    """The encoders of a projector file, on the configured backends.

    Several threads may encode; one step is computed at a time.

    Raises ModelError for a file that is no projector, or of a type that no plugin reads.

    Attributes:
        encoders: the file's encoders by what they encode.
        steps: what computes their pieces.
        width: values of a row.
    """

    def __init__(self, path: Path, config: Config, registry: Registry, file: GGUFFile | None = None) -> None:
        """Open a projector, or use an open ``file``, which stays open."""
        with ExitStack() as stack:
            file = file or stack.enter_context(GGUFFile.open(path))
            self.path = path
            self.encoders: dict[MediaKind, MediaEncoder] = {}
            self.steps: dict[MediaKind, EncoderSteps] = {}
            self._lock = threading.Lock()
            for encoder, graphs in trace_projector(file, registry, config.image_min_tokens, config.image_max_tokens):
                self.encoders[encoder.kind] = encoder
                self.steps[encoder.kind] = steps = EncoderSteps(encoder, graphs, config, registry, self._lock)
                stack.callback(steps.close)
            self.width = max(encoder.width for encoder in self.encoders.values())
            for kind, encoder in self.encoders.items():
                if self.width % encoder.width:
                    raise ModelError(f"{path}: rows of {kind}s have {encoder.width} values, others {self.width}")
            self._close = stack.pop_all().close

    def close(self) -> None:
        """Free the memory and close the file, after the piece that is being computed."""
        with self._lock:
            self._close()

    def encode(
        self, values: MediaValues, n_ctx: int | None = None, kind: MediaKind = IMAGE, form: VideoForm | None = None
    ) -> list[str | Embeddings]:
        """Return the texts and embeddings that stand for an image, a sound or a video, in order.

        Args:
            values: pixels ``[height, width, 3]``, samples ``[n]``, or the planned frames of a video.
            n_ctx: maximum rows; those of a sound are counted before anything is computed. None: any number.
            kind: what it is.
            form: that of the video.

        Raises:
            PromptTooLongError: as soon as they are known to have more than ``n_ctx`` rows.
            RequestError: there is no encoder of this kind.
        """
        return self._encoded(kind, self._prepared(values, n_ctx, kind, form), n_ctx)

    def _prepared(
        self, values: MediaValues, n_ctx: int | None, kind: MediaKind, form: VideoForm | None
    ) -> Iterable[Part]:
        self.check(kind)
        encoder = self.encoders[AUDIO if kind == AUDIO else IMAGE]
        if isinstance(encoder, AudioEncoder):
            self._check_rows(encoder.count_rows(len(values)), n_ctx, exact=True)
            return encoder.prepare(cast(Samples, values))
        assert isinstance(encoder, ImageEncoder)
        pixels = cast(Pixels, values)
        if form is None:
            return encoder.prepare(pixels)
        plan = encoder.plan_video(form)
        if pixels.shape != (len(plan.frames), *plan.size, 3):
            raise RequestError(f"video: frames {list(pixels.shape)} are not those that the model sees")
        return encoder.prepare_video(form, pixels)

    @property
    def sound_rate(self) -> int:
        """Samples a second of the sounds that are encoded."""
        encoder = self.encoders.get(AUDIO)
        return encoder.rate if isinstance(encoder, AudioEncoder) else AudioEncoder.rate

    def plan_video(self, form: VideoForm) -> VideoPlan:
        """Return which frames of a video the model sees. Raises RequestError for a plan that takes too much memory."""
        self.check(VIDEO)
        encoder = self.encoders[IMAGE]
        assert isinstance(encoder, ImageEncoder)
        plan = encoder.plan_video(form)
        plan.check(form)
        return plan

    @property
    def kinds(self) -> list[MediaKind]:
        """Kinds of media that the encoders encode."""
        sees = isinstance(encoder := self.encoders.get(IMAGE), ImageEncoder) and encoder.sees_videos
        videos: list[MediaKind] = [VIDEO] if sees else []
        return [*self.encoders, *videos]

    def check(self, kind: MediaKind) -> None:
        """Raise RequestError if there is no encoder of images, of sounds or of videos."""
        if kind not in self.kinds:
            raise RequestError(no_encoder(kind, self.path))

    def _encoded(self, kind: MediaKind, parts: Iterable[Part], n_ctx: int | None) -> list[str | Embeddings]:
        of: MediaKind = AUDIO if kind == AUDIO else IMAGE
        # Rows of sounds have no further embeddings, which images of the same model may have (deepstack).
        more = self.width - self.encoders[of].width
        encoded: list[str | Embeddings] = []
        n_rows = 0
        for part, computed in self.steps[of].rows(self._counted(parts, n_ctx)):
            if isinstance(part, str) or computed is None:
                encoded.append(str(part))
                continue
            rows = np.pad(computed, ((0, 0), (0, more))) if more else computed
            n_rows += len(rows)
            self._check_rows(n_rows, n_ctx)
            if isinstance(part, JoinedPieces):
                encoded.append(Embeddings(rows, part.grid, kind, part.times))
            elif isinstance(part, ImagePiece):
                encoded += self._separated(rows, part, kind)
            else:
                encoded.append(Embeddings(rows, kind=kind))
        return encoded

    def _counted(self, parts: Iterable[Part], n_ctx: int | None) -> Iterator[Part]:
        """Yield parts. Raises PromptTooLongError once the rows are known to be too many, before they are computed."""
        n_known = 0
        for part in parts:
            n_known += _known_rows(part)
            self._check_rows(n_known, n_ctx)
            yield part

    def _check_rows(self, n_rows: int, n_ctx: int | None, exact: bool = False) -> None:
        """Raise PromptTooLongError if rows exceed the context, and RequestError if they take too much memory.

        ``exact``: there are no more rows than these.
        """
        if n_ctx is not None and n_rows > n_ctx:
            raise PromptTooLongError(n_rows, n_ctx, exact=exact)
        if 4 * n_rows * self.width > MAX_MEDIA_BYTES:
            size = 4 * n_rows * self.width
            raise RequestError(f"the embeddings take {size} bytes; at most {MAX_MEDIA_BYTES} are supported")

    def _separated(self, rows: Rows, piece: ImagePiece, kind: MediaKind) -> list[str | Embeddings]:
        """Return the embeddings of a piece, with its text between the rows of its grid."""
        end = len(rows) - piece.n_after
        if piece.n_before or piece.n_after:
            before, after = (Embeddings(part, kind=kind) for part in (rows[: piece.n_before], rows[end:]))
            inner = self._separated(rows[piece.n_before : end], replace(piece, n_before=0, n_after=0), kind)
            return [*([before] if before.n_rows else []), *inner, *([after] if after.n_rows else [])]
        if not piece.row_end or piece.grid is None:
            return [Embeddings(rows, piece.grid, kind, block=piece.block)]
        parts: list[str | Embeddings] = []
        for row in rows.reshape(*piece.grid, self.width):
            parts += [Embeddings(row, kind=kind), piece.row_end]
        return parts[:-1]


def _known_rows(part: Part) -> int:
    """Return the number of a part's rows as far as it is known before they are computed, else 0."""
    if isinstance(part, str):
        return 0
    if isinstance(part, JoinedPieces):
        return len(part.order)
    if isinstance(part, SoundPiece):
        return part.n_rows or 0
    return 0 if part.grid is None else part.n_before + math.prod(part.grid) + part.n_after
