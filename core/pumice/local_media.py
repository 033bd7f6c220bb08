"""Media and speech of an engine in this process: its projector, vocoder and speech model, opened on first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pumice.architecture import MediaKind
from pumice.chat.mixed import PromptPart
from pumice.clients import failure_of
from pumice.config import Config
from pumice.engine.media.encoders import ChosenProjector, no_encoder, no_projector
from pumice.engine.media.projector import Projector
from pumice.engine.media.rows import keyed
from pumice.engine.messages import MediaValues, Speak
from pumice.engine.speech import Speaker, SpeechGraphs
from pumice.errors import ModelClosedError, PumiceError, RequestError
from pumice.gguf import GGUFFile
from pumice.media.videos import VideoForm, VideoPlan
from pumice.registry import Registry
from pumice.speech.outetts import OuteTTS
from pumice.speech.stream import SpeechStream
from pumice.speech.vocoder import LazyVocoder, Vocoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class LocalMedia:
    """Encodes media by the model's projector, which is opened on first use; ``stack`` closes it."""

    def __init__(
        self, stack: ExitStack, chosen: ChosenProjector, config: Config, registry: Registry, n_ctx: int, width: int
    ) -> None:
        """``width``: values of a row of media that the model takes; 0 if it takes none."""
        self._chosen, self._config, self._registry = chosen, config, registry
        self._n_ctx, self._width = n_ctx, width
        self._lock = threading.Lock()
        self._projector: Projector | None = None
        self._closed = False
        stack.callback(self._close)

    @property
    def has_encoders(self) -> bool:
        """True if the projector's file has encoders of media for prompts."""
        return bool(self._chosen.parts.media)

    def projector(self, kind: MediaKind | None = None) -> Projector:
        """Return the projector, opened now if it is not yet.

        Raises:
            RequestError: there is none for ``kind``, or it is another model's.
            ModelClosedError: the model is closed.
        """
        with self._lock:
            if self._closed:
                raise ModelClosedError("the model is closed")
            projector = self._projector = self._projector or self._open(kind or "image")
        if kind:
            projector.check(kind)
        if projector.width != self._width:
            raise RequestError(
                f"{projector.path.name}: it makes rows of {projector.width} values, but this model takes "
                f"{self._width or 'no media'}: it is the projector of another model"
            )
        return projector

    def _open(self, kind: MediaKind) -> Projector:
        path, parts = self._chosen.path, self._chosen.parts
        if path is None:
            raise RequestError(no_projector(kind))
        if parts.speech and not parts.media:
            raise RequestError(no_encoder(kind, path))
        return Projector(path, self._config, self._registry, self._chosen.own)

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            projector, self._projector = self._projector, None
        if projector is not None:
            projector.close()

    def check(self, kind: MediaKind) -> None:
        self.projector(kind)

    @property
    def sound_rate(self) -> int:
        return self.projector("audio").sound_rate

    def encode(self, kind: MediaKind, values: MediaValues, form: VideoForm | None = None) -> Sequence[PromptPart]:
        return keyed(self.projector(kind).encode(values, self._n_ctx, kind, form), values, form)

    def plan_video(self, form: VideoForm) -> VideoPlan:
        return self.projector("video").plan_video(form)


class LocalSpeech:
    """Makes sound by the model's vocoder or speech model, which are opened on first use; ``stack`` closes them."""

    def __init__(
        self,
        stack: ExitStack,
        chosen: ChosenProjector,
        file: GGUFFile,
        config: Config,
        registry: Registry,
        speaker: Callable[[SpeechGraphs], Speaker],
        open_vocoder: Callable[[Path, Config], Vocoder],
    ) -> None:
        """``speaker`` returns that of a speech model; ``open_vocoder`` loads a vocoder's file."""
        self._chosen, self._file, self._config, self._registry = chosen, file, config, registry
        self._make_speaker = speaker
        self._lock = threading.Lock()
        self._speaker: Speaker | None = None
        self._closed = False
        stack.callback(self._close)
        self.vocoder = LazyVocoder(file.path, config, open_vocoder)
        stack.callback(self.vocoder.close)

    @property
    def type(self) -> str:
        """Type of the speech model; empty without one. Raises PumiceError for a configured file that is damaged."""
        try:
            return self._chosen.parts.speech
        except PumiceError:
            if self._config.mmproj:
                raise
            return ""  # the warning of a projector that was found beside the model is that of images

    @property
    def has_codes(self) -> bool:
        """True for a model that generates audio codes, with a vocoder beside it."""
        tokens = self._file.metadata.get("tokenizer.ggml.tokens")
        return self.vocoder.is_there and isinstance(tokens, list) and OuteTTS.of(tokens) is not None

    def speaker(self) -> Speaker:
        """Return the speaker of the speech model. Raises ModelError, and ModelClosedError after ``close``."""
        with self._lock:
            if self._closed:
                raise ModelClosedError("the model is closed")
            if self._speaker is None:
                assert self._chosen.path
                graphs = SpeechGraphs(self._chosen.path, self._config, self._registry)
                self._speaker = self._make_speaker(graphs)
            return self._speaker

    def check(self) -> None:
        if self.type:
            self.speaker()
        else:
            self.vocoder()

    def decode(self, codes: Sequence[int]) -> Future[NDArray[np.float32]]:
        return self.vocoder().decode(codes)

    def speak(self, command: Speak, emit: Callable[[NDArray[np.float32]], None]) -> Future[int]:
        """Speak a piece of a text; ``emit`` is called with its samples in turn. Return the number of frames.

        Cancelling the future ends the speech. Raises RequestError for a model without a speech model.
        """
        if not self.type:
            raise RequestError("this model has no speech model")
        return self.speaker().speak(command, emit)

    def open(self, command: Callable[[int], Speak]) -> SpeechStream:
        stream = SpeechStream()
        speaking = self.speak(command(0), stream.put)
        stream.cancel = speaking.cancel
        speaking.add_done_callback(partial(_end, stream))
        return stream

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            speaker, self._speaker = self._speaker, None
        if speaker is not None:
            speaker.close()


def _end(stream: SpeechStream, speaking: Future[int]) -> None:
    if error := failure_of(speaking):
        stream.fail(error)
    else:
        stream.end(speaking.result())
