"""The parts of a projector file (mmproj): encoders of media for prompts, a speech model, or both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pumice.architecture import MediaKind
from pumice.gguf import GGUFFile
from pumice.hub.projectors import find_projector

IMAGE: Final = "image"
AUDIO: Final = "audio"
VIDEO: Final = "video"
PARTS: Mapping[MediaKind, tuple[str, str]] = {IMAGE: ("vision", "images"), AUDIO: ("audio", "sound")}
"""The part of a file's keys for each kind of media, and what users call these."""
SPEECH_TYPE = "clip.gen.audio.projector_type"
_GENERATES = "clip.has_gen_audio_encoder"
_VOICES = "_spkenc"  # end of the types of encoders of voices, which a speech model uses


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
