"""A projector file (mmproj): its parts, its encoders, and their graphs."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from pumice.architecture import HParams, MediaKind
from pumice.errors import ConfigError, ModelError, PumiceError
from pumice.gguf import GGUFFile
from pumice.graph import Graph, GraphBuilder
from pumice.guard import guard, guarded
from pumice.hub.projectors import find_projector
from pumice.media_encoder import ImageEncoder, ImagePiece, JoinedPieces, MediaEncoder, MediaStage, Pixels
from pumice.registry import Registry

IMAGE: Final = "image"
AUDIO: Final = "audio"
VIDEO: Final = "video"
PARTS: Mapping[MediaKind, tuple[str, str]] = {IMAGE: ("vision", "images"), AUDIO: ("audio", "sound")}
"""The part of a file's keys for each kind of media, and what users call these."""
SPEECH_TYPE = "clip.gen.audio.projector_type"
_GENERATES = "clip.has_gen_audio_encoder"
_VOICES = "_spkenc"  # end of the types of encoders of voices, which a speech model uses

_ENCODERS_OF_PARTS = {("qwen2.5o", "vision"): "qwen2.5vl_merger"}
"""Projector types of files with two encoders, of which one part has an encoder of another type."""
ImageParts: TypeAlias = Sequence[str | ImagePiece | JoinedPieces]

logger = logging.getLogger("pumice")


@dataclass(frozen=True)
class ProjectorParts:
    """The parts of a projector file.

    Attributes:
        media: kinds of media that it encodes for prompts.
        speech: type of its speech model; empty without one.
    """

    media: tuple[MediaKind, ...] = ()
    speech: str = ""

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> ProjectorParts:
        """Return the parts by a file's metadata."""
        speech = metadata.get(SPEECH_TYPE) if metadata.get(_GENERATES) else ""
        hears_voices = str(metadata.get("clip.audio.projector_type")).endswith(_VOICES)
        media = tuple(
            kind
            for kind, (name, _) in PARTS.items()
            if metadata.get(f"clip.has_{name}_encoder") and not (kind == AUDIO and hears_voices)
        )
        return cls(media, speech if isinstance(speech, str) else "")


class ChosenProjector:
    """The projector file of a model, read once it is found; it may come after the model was loaded.

    Args:
        model: the model's file.
        mmproj: the option of this name.
        file: the open file of the model.

    Attributes:
        own: the model's file, if its projector is in it, as Whisper's is.
    """

    def __init__(self, model: Path, mmproj: str, file: GGUFFile | None = None) -> None:
        self.own = file if file and ProjectorParts.of(file.metadata).media else None
        self._model = model
        self._mmproj = mmproj
        self._path = self.own.path if self.own else None

    @property
    def path(self) -> Path | None:
        """The file; None as long as there is none."""
        if self._path is None:
            self._path = find_projector(self._model, self._mmproj)
        return self._path

    @property
    def parts(self) -> ProjectorParts:
        """The parts of the file; none without one. Raises PumiceError for a file that cannot be read."""
        return ProjectorParts() if self.path is None else self._parts

    def check(self) -> None:
        """Raise ConfigError if the option names a file that is no projector."""
        if self._mmproj and self.path is not None and self.parts == ProjectorParts():
            raise ConfigError(f"mmproj: {self.path}: not a projector; files of projectors are named mmproj*.gguf")

    @cached_property
    def _parts(self) -> ProjectorParts:
        if self.own:
            return ProjectorParts.of(self.own.metadata)
        assert self.path is not None
        with GGUFFile.open(self.path) as file:
            return ProjectorParts.of(file.metadata)


def refusal(kind: MediaKind) -> str:
    """Return the beginning of the error for a model that takes no images, or no sound."""
    return f"this model takes no {'video' if kind == VIDEO else PARTS[kind][1]}"


def no_projector(kind: MediaKind) -> str:
    """Return the error for a model without a projector."""
    return f"{refusal(kind)} without a projector: put one file mmproj*.gguf beside it, or give it by the option mmproj"


def no_encoder(kind: MediaKind, path: Path) -> str:
    """Return the error for a model whose projector file does not encode a kind of media."""
    return f"{refusal(kind)}: {path.name} has no encoder of {'them' if kind == IMAGE else 'it'}"


def trace_projector(
    file: GGUFFile, registry: Registry, least: int = 0, most: int = 0
) -> list[tuple[MediaEncoder, list[Graph]]]:
    """Return the encoders of a projector file with the graph of each of their stages.

    Args:
        file: the file.
        registry: registered plugins.
        least, most: tokens of an image, for encoders of any size; 0: as the file says.

    Raises:
        ModelError: the file is no projector, of a type that no plugin reads, or with wrong tensors. If only one of
            its encoders can be read, the other one is a warning.
    """
    kinds = ProjectorParts.of(file.metadata).media
    if not kinds:
        raise ModelError(
            f"{file.path}: not a projector of images or sound: general.architecture is {file.architecture!r}"
        )
    traced, errors = [], []
    for kind in kinds:
        try:
            traced.append(_traced(file, registry, kind, {"image_min_tokens": least, "image_max_tokens": most}))
        except ModelError as error:
            errors.append(error)
    if not traced:
        raise errors[0]
    for unread in errors:
        logger.warning("%s", unread)
    return traced


def _traced(
    file: GGUFFile, registry: Registry, kind: MediaKind, options: Mapping[str, int]
) -> tuple[MediaEncoder, list[Graph]]:
    encoder = _encoder(file, registry, kind, options)
    graphs = []
    try:
        for stage in (MediaStage(encoder.n_rows, encoder.build), *encoder.stages):
            g = GraphBuilder(file.tensors, encoder.n_layer, stage.n_rows)
            g.output("rows", stage.build(g))
            g.check_blocks(encoder.differing_tensors)
            graphs.append(g.finish())
        return encoder, graphs
    except ModelError as error:
        raise ModelError(f"{file.path}: {error}") from None


def kinds_of_media(metadata: Mapping[str, Any], registry: Registry) -> list[MediaKind]:
    """Return the kinds of media that a file's encoders take, by its header: no encoder is made."""
    kinds = list(ProjectorParts.of(metadata).media)
    if IMAGE in kinds:
        with suppress(PumiceError):  # an unknown type, which is an error where the file is loaded
            encoder = registry.media_encoders.find(_type_of(metadata, IMAGE))
            kinds += [VIDEO] if getattr(encoder, "sees_videos", False) else []
    return kinds


def _type_of(metadata: Mapping[str, Any], kind: MediaKind) -> str:
    """Return the projector type of an encoder. Raises ModelError without one."""
    part = PARTS[kind][0]
    name = metadata.get("clip.projector_type") or metadata.get(f"clip.{part}.projector_type")
    if not isinstance(name, str):
        raise ModelError("metadata key clip.projector_type is missing from the file")
    return _ENCODERS_OF_PARTS.get((name, part), name)


def _encoder(file: GGUFFile, registry: Registry, kind: MediaKind, options: Mapping[str, int]) -> MediaEncoder:
    metadata, part = file.metadata, PARTS[kind][0]
    activation = "gelu" if metadata.get("clip.use_gelu") else "silu" if metadata.get("clip.use_silu") else "quick"
    keys = {**metadata, "general.architecture": f"clip.{part}", f"clip.{part}.activation": activation}
    keys |= {f"clip.{part}.{key}": value for key, value in options.items()}
    try:
        name = _type_of(metadata, kind)
        make = registry.media_encoders.find(name)
        where = registry.media_encoders.describe(name)
        encoder: MediaEncoder = guarded(make, f"{where}: __init__")(HParams(keys))
    except ModelError as error:
        raise ModelError(f"{file.path}: {error}") from None
    if encoder.kind != kind:
        raise ModelError(f"{file.path}: the projector type {name!r} is no encoder of {PARTS[kind][1]}")
    if isinstance(encoder, ImageEncoder) and not encoder.bounds_tokens and any(options.values()):
        names = " and ".join(option for option, value in options.items() if value)
        logger.warning("%s: %s has no effect: %s encodes images of fixed sizes", file.path, names, name)
    if isinstance(encoder, ImageEncoder):
        encoder.prepare = checked_parts(encoder.prepare)  # type: ignore[method-assign, assignment]
    guard(encoder, where, ["prepare", "build", *(["count_rows"] if kind == AUDIO else ["plan_video", "prepare_video"])])
    return encoder


def checked_parts(prepare: Callable[[Pixels], ImageParts]) -> Callable[[Pixels], ImageParts]:
    """Return a ``prepare`` that raises TypeError unless there are texts and at least one piece with its patches."""

    @functools.wraps(prepare)
    def checked(pixels: Pixels) -> ImageParts:
        parts = list(prepare(pixels))
        pieces = [part for part in parts if not isinstance(part, str)]
        if not pieces or not all(isinstance(piece, (ImagePiece, JoinedPieces)) for piece in pieces):
            raise TypeError(f"expected texts and at least one ImagePiece, not {parts!r:.100}")
        for piece in pieces:
            if isinstance(piece, ImagePiece) and not isinstance(piece.inputs.get("patches"), np.ndarray):
                raise TypeError("a piece has no array as its input patches")
        return parts

    return checked
