"""Speech: texts as sound, by language models of audio codes with vocoders, and by speech models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pumice.audio import Audio, voice_samples
from pumice.engine.messages import Speak
from pumice.errors import RequestError
from pumice.frontend.generating import Generating
from pumice.options import GenerateOptions
from pumice.speech.outetts import OuteTTS
from pumice.speech.stream import SpeechStream
from pumice.speech.vocoder import MOST_CODES
from pumice.speech.voice import Voice
from pumice.speech.waveform import RATE
from pumice.speech_model import SpeechModel, SpokenText
from pumice.streaming.pieces import Completion
from pumice.tokenizers import Tokenizer
from pumice.tracebacks import short_traceback
from pumice.wording import show_python

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_SECONDS = 1800.0  # of a speech
DEFAULT_SECONDS = 600.0
TEMPERATURE, REPEAT_PENALTY = 0.1, 1.1  # those of the package outetts
_CODES_PER_WORD = 120  # at most: 1.6 seconds
_CODES_AROUND = 225
MAX_TEMPERATURE = 2.0
CANNOT_SPEAK = (
    "this model does not speak: its vocabulary has no audio codes of OuteTTS 0.2 or 0.3 (<|0|>, ...), and no speech "
    "model is loaded: put one file mmproj*.gguf beside it, or give it by the option mmproj"
)
SpeechProgress = Callable[[float], object] | None
"""Called with the seconds of sound so far."""


@dataclass(frozen=True)
class SpeechPiece:
    """A part of a speech.

    Attributes:
        text: what is said.
        prompt: token ids.
        options: of the generation that continues them.
    """

    text: str
    prompt: list[int]
    options: GenerateOptions


@dataclass(frozen=True)
class FramePiece:
    """A part of a speech by a speech model.

    Attributes:
        spoken: what is said.
        voice: float32 samples of a voice, 24,000 a second; empty for none.
        temperature: that of the sampler.
        seed: that of the sampler; None is random.
    """

    spoken: SpokenText
    voice: bytes
    temperature: float
    seed: int | None

    @property
    def text(self) -> str:
        return self.spoken.text

    def command(self, id: int) -> Speak:
        """Return the message to the engine."""
        return Speak(id, self.spoken, self.temperature, self.seed, self.voice)


AnyPiece = SpeechPiece | FramePiece
AnyVoice = Voice | Audio | str | Path | None


class Speaking(Generating):
    """Speech with a model that generates audio codes, and a vocoder beside it, or with a speech model."""

    @property
    @abstractmethod
    def speech_type(self) -> str:
        """The type of the speech model beside the model; empty without one."""

    def check_kind_speaks(self) -> None:
        """Raise RequestError for a model that speaks with no file beside it."""
        if not self.speech_type and self._speaker is None:
            raise RequestError(CANNOT_SPEAK)

    @abstractmethod
    def check_speaks(self) -> None:
        """Raise RequestError for a model without a vocoder or speech model, before anything is generated."""

    @abstractmethod
    def open_speech(self, command: Callable[[int], Speak]) -> SpeechStream:
        """Start to speak a piece by the speech model; ``command`` makes the message of an id. Raises RequestError."""

    @abstractmethod
    def decode_speech(self, codes: Sequence[int]) -> Future[NDArray[np.float32]]:
        """Return the samples of audio codes, 24,000 a second. Raises RequestError."""

    @short_traceback
    def speak(
        self,
        text: str,
        *,
        voice: AnyVoice = None,
        temperature: float | None = None,
        seed: int | None = None,
        max_seconds: float = DEFAULT_SECONDS,
        language: str = "",
        progress: SpeechProgress = None,
    ) -> Audio:
        """Return a text as speech.

        Args:
            text: Text, up to 4,096 characters; for OuteTTS in Latin letters. It is spoken in pieces.
            voice: File or value of a voice: for OuteTTS in its form, for a speech model a sound of up to 30 seconds, or
                the name of a voice of the model's own. None leaves the voice to the model.
            temperature: Temperature of the sampler. None is the model's own: 0.1 for OuteTTS, 0.3 for Pocket TTS, 0.9
                for Qwen3-TTS.
            seed: Seed of the sampler. None is random.
            max_seconds: Maximum length of the sound in seconds, up to 1,800.
            language: Language of the text, for a Qwen3-TTS such as "english". Empty leaves it to the model.
            progress: Called with the seconds of sound so far, after each piece.

        Raises:
            RequestError: The model does not speak or lacks a file for it, or an argument is wrong.
        """
        import numpy as np

        parts: list[NDArray[np.float32]] = []
        stream = self.speak_stream(
            text, voice=voice, temperature=temperature, seed=seed, max_seconds=max_seconds, language=language
        )
        for samples in stream:
            parts.append(samples)
            if progress:
                progress(sum(map(len, parts)) / RATE)
        return Audio(np.concatenate(parts), RATE)

    def speak_stream(
        self,
        text: str,
        *,
        voice: AnyVoice = None,
        temperature: float | None = None,
        seed: int | None = None,
        max_seconds: float = DEFAULT_SECONDS,
        language: str = "",
    ) -> Iterator[NDArray[np.float32]]:
        """Like ``speak``, but yield the samples as they come, 24,000 a second. Closing the iterator ends it."""
        left = most_samples(max_seconds)
        for piece in self.speech_pieces(text, voice, temperature, seed, language):
            for samples in self._sound_of(piece):
                yield samples[:left]
                left -= len(samples)
                if left <= 0:
                    return

    def _sound_of(self, piece: AnyPiece) -> Iterator[NDArray[np.float32]]:
        """Yield the samples of a piece."""
        if isinstance(piece, SpeechPiece):
            with self.stream(piece.prompt, **piece.options) as stream:
                codes = self.speech_codes(stream.completion())
            with self._waiting(self.decode_speech(codes)) as samples:
                yield samples
            return
        speech = self.open_speech(piece.command)
        try:
            while (part := speech.next().result()) is not None:
                yield part
        finally:
            speech.close()

    async def aspeak_stream(
        self,
        text: str,
        *,
        voice: AnyVoice = None,
        temperature: float | None = None,
        seed: int | None = None,
        max_seconds: float = DEFAULT_SECONDS,
        language: str = "",
    ) -> AsyncIterator[NDArray[np.float32]]:
        """Like ``speak_stream``, for a coroutine."""
        from asyncio import to_thread

        left = most_samples(max_seconds)
        for piece in await to_thread(self.speech_pieces, text, voice, temperature, seed, language):
            async with aclosing(self.asound_of(piece)) as parts:
                async for samples in parts:
                    yield samples[:left]
                    left -= len(samples)
                    if left <= 0:
                        return

    async def asound_of(self, piece: AnyPiece) -> AsyncGenerator[NDArray[np.float32], None]:
        """Yield the samples of a piece, for a coroutine. Closing the generator ends it."""
        from asyncio import to_thread, wrap_future

        if isinstance(piece, SpeechPiece):
            async with self.astream(piece.prompt, **piece.options) as stream:
                codes = self.speech_codes(await stream.completion())
            yield await wrap_future(await to_thread(self.decode_speech, codes))
            return
        speech = await to_thread(self.open_speech, piece.command)
        try:
            while (part := await wrap_future(speech.next())) is not None:
                yield part
        finally:
            speech.close()

    def speech_pieces(
        self,
        text: str,
        voice: AnyVoice = None,
        temperature: float | None = None,
        seed: int | None = None,
        language: str = "",
    ) -> list[AnyPiece]:
        """Return the pieces of a speech, for a server that generates them itself. Raises as ``speak``."""
        if not isinstance(text, str):
            raise RequestError(f"speech: the text must be a string, not {show_python(text)}")
        if not isinstance(language, str):
            raise RequestError(f"language must be a string such as 'english', not {show_python(language)}")
        if self.speech_type:
            return self._frame_pieces(text, voice, temperature, seed, language)
        self.check_kind_speaks()
        speaker = self._speaker
        assert speaker is not None
        if language:
            raise RequestError("language: OuteTTS reads it from the text; leave it out")
        if isinstance(voice, (str, Path)):
            voice = Voice.read(voice)
        if voice is not None and not isinstance(voice, Voice):
            raise RequestError(f"voice must be a file or a pumice.Voice, not {show_python(voice)}")
        texts = speaker.pieces(text)
        self.check_speaks()
        options: GenerateOptions = {
            "temperature": TEMPERATURE if temperature is None else temperature,
            "repeat_penalty": REPEAT_PENALTY,
            "stop_tokens": speaker.ends,
        }
        if seed is not None:
            options["seed"] = seed
        pieces: list[AnyPiece] = []
        for piece in texts:
            n_codes = min(MOST_CODES, _CODES_AROUND + _CODES_PER_WORD * len(speaker.words(piece)))
            prompt = self.tokenize(speaker.prompt(piece, voice), add_special=False)
            pieces.append(SpeechPiece(piece, prompt, {**options, "max_tokens": n_codes}))
        return pieces

    def _frame_pieces(
        self, text: str, voice: AnyVoice, temperature: float | None, seed: int | None, language: str
    ) -> list[AnyPiece]:
        """Return the pieces of a speech by the speech model. Raises as ``speak``."""
        model: type[SpeechModel] = self._registry.speech_models.find(self.speech_type)
        spread = model.default_temperature if temperature is None else temperature
        is_number = isinstance(spread, (int, float)) and not isinstance(spread, bool)
        if not is_number or not 0 <= spread <= MAX_TEMPERATURE:
            raise RequestError(f"temperature must be a number from 0 to {MAX_TEMPERATURE}, not {show_python(spread)}")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**53):
            raise RequestError(f"seed must be a whole number from 0 to 2^53, not {show_python(seed)}")
        speaker = voice if isinstance(voice, str) and self.has_speaker(voice) else ""
        if speaker:
            voice = None
        elif isinstance(voice, (str, Path)):
            voice = Audio(Path(voice))
        if voice is not None and not isinstance(voice, Audio):
            raise RequestError(
                f"voice must be a file of sound or a pumice.Audio for this model, not {show_python(voice)}"
            )
        pieces = model.pieces(text, TokenizerVocabulary(self.tokenizer), language, speaker)
        samples = b"" if voice is None else voice_samples(voice).tobytes()
        self.check_speaks()
        return [FramePiece(piece, samples, float(spread), seed) for piece in pieces]

    def has_speaker(self, name: str) -> bool:
        """Return True if the model has a voice of its own of this name, for ``voice``."""
        if not self.speech_type or not name.isprintable():
            return False
        model: type[SpeechModel] = self._registry.speech_models.find(self.speech_type)
        return model.has_speaker(name, TokenizerVocabulary(self.tokenizer))

    def speech_codes(self, completion: Completion) -> list[int]:
        """Return the audio codes among the tokens of a piece. Raises RequestError if it has none."""
        speaker = self._speaker
        codes = [speaker.codes[token] for token in completion.tokens if token in speaker.codes] if speaker else []
        if not codes:
            raise RequestError("speech: the model generated no audio codes; try another text, voice or seed")
        return codes

    @cached_property
    def _speaker(self) -> OuteTTS | None:
        """The form of the model's prompts; None if it does not speak."""
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        return OuteTTS.of(tokens) if isinstance(tokens, list) else None


class TokenizerVocabulary:
    """The vocabulary of a tokenizer, for a speech model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.tokenize(text, False, False)

    def decode(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self._tokenizer.token_bytes, tokens)).decode("utf-8", "replace")

    def find(self, token: str) -> int | None:
        ids = self._tokenizer.tokenize(token, False, True)
        return ids[-1] if ids and self._tokenizer.token_bytes(ids[-1], special=True) == token.encode() else None


def most_samples(seconds: float) -> int:
    """Return the samples of a number of seconds. Raises RequestError for one beyond the limit."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= MAX_SECONDS:
        raise RequestError(
            f"max_seconds must be a number above 0 and up to {MAX_SECONDS:.0f}, not {show_python(seconds)}"
        )
    return max(1, round(seconds * RATE))
