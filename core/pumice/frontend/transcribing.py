"""Transcription: speech to segments of text, with Whisper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from pumice.audio import Audio, SoundBudget
from pumice.engine import Request
from pumice.engine.messages import Span
from pumice.errors import RequestError
from pumice.frontend.base import spans_of
from pumice.frontend.generating import Generating
from pumice.images import REQUEST_CANCELLED
from pumice.media_encoder import Embeddings
from pumice.streaming.pieces import Completion
from pumice.streaming.stream import Stream
from pumice.tracebacks import short_traceback
from pumice.transcription import ARCHITECTURE, TranscribeKeywords, TranscribeOptions, Transcriber, Transcript
from pumice.wording import show_python

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NO_TRANSCRIPTS = "this model does not transcribe: transcribe takes a model of Whisper's"


class Transcribing(Generating):
    """Transcription with a model of Whisper's."""

    @property
    def transcribes(self) -> bool:
        """True for a model of Whisper's."""
        return bool(self.metadata.get("general.architecture") == ARCHITECTURE)

    @short_traceback
    def transcribe(self, sound: Audio | str | Path, **options: Unpack[TranscribeKeywords]) -> Transcript:
        """Return the segments of speech as they are decoded: ``for segment in model.transcribe("talk.wav"): ...``.

        Args:
            sound: File of up to 30 minutes, or ``pumice.Audio``.
            **options: See ``TranscribeKeywords``.

        Returns:
            An iterator over segments, which has the language.

        Raises:
            RequestError: The model does not transcribe, the file is no sound, or an option is wrong.
        """
        if not self.transcribes:
            raise RequestError(NO_TRANSCRIPTS)
        if isinstance(sound, (str, Path)):
            sound = Audio(sound)
        if not isinstance(sound, Audio):
            raise RequestError(f"transcribe takes a file or a pumice.Audio, not {show_python(sound)}")
        chosen = TranscribeOptions(**options)
        transcriber = Transcriber(_Hearing(self), self.metadata, chosen)
        transcriber.special.language(chosen.language)  # before the sound is decoded
        return Transcript(transcriber, sound.samples())

    def _hear(self, samples: NDArray[np.float32]) -> list[Span]:
        parts = self._encode_media(Audio(samples, rate=Audio.RATE), "", SoundBudget())
        return spans_of([(0, part) for part in parts if isinstance(part, Embeddings)])


class _Hearing:
    """What the decoding of a sound needs of a model."""

    def __init__(self, model: Transcribing) -> None:
        self._model = model

    def hear(self, samples: NDArray[np.float32]) -> Sequence[Span]:
        return self._model._hear(samples)

    def decode(self, request: Request) -> Completion:
        (stream,) = Stream.open(self._model.client, request)
        cancelled = REQUEST_CANCELLED.get()
        if cancelled is not None:
            cancelled.add_done_callback(lambda _: stream.close())
        try:
            return stream.completion()
        finally:
            stream.close()

    def spelled(self, tokens: Sequence[int]) -> str:
        return self._model.detokenize(tokens)

    def tokens_of(self, text: str) -> list[int]:
        return self._model.tokenize(text, add_special=False, parse_special=False)
