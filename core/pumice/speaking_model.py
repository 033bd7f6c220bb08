"""Speech of a model whose engine is in this process: its vocoder or its speech model, opened on first use."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pumice.config import Config
from pumice.engine import EngineThread
from pumice.engine.media.projector_parts import ChosenProjector
from pumice.engine.messages import Speak
from pumice.engine.speech.graphs import SpeechGraphs
from pumice.engine.speech.speaker import Speaker
from pumice.errors import ModelClosedError, PumiceError, RequestError
from pumice.frontend import Frontend
from pumice.registry import Registry
from pumice.speech.stream import SpeechStream
from pumice.speech.vocoder import LazyVocoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("pumice")


class LazySpeaker:
    """The speaker of a model's speech model, opened on first use. Thread-safe.

    Args:
        chosen: the projector's file.
        config: its configuration.
        registry: registered plugins.
        engine: returns the thread of its engine.
    """

    def __init__(
        self, chosen: ChosenProjector, config: Config, registry: Registry, engine: Callable[[], EngineThread]
    ) -> None:
        self._chosen = chosen
        self._config = config
        self._registry = registry
        self._engine = engine
        self._lock = threading.Lock()
        self._speaker: Speaker | None = None
        self._closed = False

    @property
    def type(self) -> str:
        """The type of the speech model; empty without one. Raises PumiceError for a configured file that is damaged."""
        try:
            return self._chosen.parts.speech
        except PumiceError:
            if self._config.mmproj:
                raise
            return ""  # the warning of a projector that was found beside the model is that of images

    def __call__(self) -> Speaker:
        """Return the speaker. Raises ModelError, and ModelClosedError after ``close``."""
        with self._lock:
            if self._closed:
                raise ModelClosedError("the model is closed")
            if self._speaker is None:
                assert self._chosen.path
                self._speaker = Speaker(SpeechGraphs(self._chosen.path, self._config, self._registry), self._engine())
            return self._speaker

    def close(self) -> None:
        with self._lock:
            self._closed = True
            speaker, self._speaker = self._speaker, None
        if speaker is not None:
            speaker.close()


class SpeakingModel(Frontend):
    """The part of ``Model`` that speaks."""

    _load_vocoder: LazyVocoder
    _load_speaker: LazySpeaker

    @property
    def speech_type(self) -> str:
        return self._load_speaker.type

    def check_speaks(self) -> None:
        if self.speech_type:
            self._load_speaker()
        else:
            self._load_vocoder()

    def decode_speech(self, codes: Sequence[int]) -> Future[NDArray[np.float32]]:
        return self._load_vocoder().decode(codes)

    def speak_piece(self, command: Speak, emit: Callable[[NDArray[np.float32]], None]) -> Future[int]:
        """Speak a piece of a text; ``emit`` is called with its samples in turn. Return the number of frames.

        Cancelling the future ends the speech. Raises RequestError for a model without a speech model.
        """
        if not self.speech_type:
            raise RequestError("this model has no speech model")
        return self._load_speaker().speak(command, emit)

    def open_speech(self, command: Callable[[int], Speak]) -> SpeechStream:
        stream = SpeechStream()
        speaking = self.speak_piece(command(0), stream.put)
        stream.cancel = speaking.cancel
        speaking.add_done_callback(partial(_end, stream))
        return stream

    def open_speaker(self) -> None:
        """Open what makes sound now, if there is anything; a file that cannot be read is a warning.

        Raises PumiceError for one that is configured.
        """
        try:
            if self.speech_type:
                model = self._load_speaker().model
                facts = replace(self.facts, speech=self.speech_type, samples_per_code=model.samples_per_frame)
                self.facts = facts
            elif self._load_vocoder.is_there and self._speaker is not None:
                vocoder = self._load_vocoder()
                codes, samples = vocoder.n_codes, vocoder.samples_per_code
                self.facts = replace(self.facts, audio_codes=codes, samples_per_code=samples)
        except PumiceError as error:
            if self.config.mmproj if self.speech_type else self.config.vocoder:
                raise
            log.warning("no speech: %s", error)


def _end(stream: SpeechStream, speaking: Future[int]) -> None:
    error = RequestError("the request was cancelled") if speaking.cancelled() else speaking.exception()
    if isinstance(error, Exception):
        stream.fail(error)
    else:
        stream.end(speaking.result())
