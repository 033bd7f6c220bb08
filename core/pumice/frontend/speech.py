"""Speech: texts as sound, by language models of audio codes with vocoders, and by speech models; sounds as text."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from pumice.architecture import transcribes
from pumice.clients import REQUEST_CANCELLED
from pumice.embeddings import Embeddings
from pumice.engine import Request
from pumice.engine.messages import Encode, Speak, Terms
from pumice.errors import RequestError
from pumice.frontend.engine import ModelEngine
from pumice.frontend.media import Media
from pumice.frontend.requests import RequestMaker
from pumice.media.audio import Audio, SoundBudget, voice_samples
from pumice.options import REQUEST, GenerateOptions
from pumice.speech.outetts import OuteTTS
from pumice.speech.stream import SpeechStream
from pumice.speech.vocoder import MOST_CODES
from pumice.speech.voice import Voice
from pumice.speech.waveform import RATE
from pumice.speech_model import SpeechModel, SpokenText
from pumice.streaming.pieces import Completion
from pumice.streaming.stream import AsyncStream, Stream
from pumice.tokenizers import Tokenizer
from pumice.tracebacks import short_traceback
from pumice.transcription import TranscribeKeywords, TranscribeOptions, Transcriber, Transcript
from pumice.wording import show_python, unknown_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

MAX_SECONDS = 1800.0  # of a speech
DEFAULT_SECONDS = 600.0
TEMPERATURE, REPEAT_PENALTY = 0.1, 1.1  # those of the package outetts
_CODES_PER_WORD = 120  # at most: 1.6 seconds
_CODES_AROUND = 225
_TOKENS_PER_CODE = 2  # at most, with the words and their durations
MAX_TEMPERATURE = 2.0
CANNOT_SPEAK = (
    "this model does not speak: its vocabulary has no audio codes of OuteTTS 0.2 or 0.3 (<|0|>, ...), and no speech "
    "model is loaded: put one file mmproj*.gguf beside it, or give it by the option mmproj"
)
NO_TRANSCRIPTS = "this model does not transcribe: transcribe takes a model such as Whisper"
AnyVoice = Voice | Audio | str | Path | None
SpeechProgress = Callable[[float], object] | None
"""Called with the seconds of sound so far."""


class SpeechOptions(TypedDict, total=False):
    """Keywords of ``speak``, ``stream`` and ``astream``.

    Attributes:
        voice: File or value of a voice: for OuteTTS in its form, for a speech model a sound of up to 30 seconds, or
            the name of a voice of the model's own. None leaves the voice to the model.
        temperature: Temperature of the sampler. None is the model's own: 0.1 for OuteTTS, 0.3 for Pocket TTS, 0.9
            for Qwen3-TTS.
        seed: Seed of the sampler. None is random.
        max_seconds: Maximum length of the sound in seconds, up to 1,800.
        language: Language of the text, for a Qwen3-TTS such as "english". Empty leaves it to the model.
        timeout: Timeout of each piece of the text in seconds, including time in the queue. None is no limit.
    """

    voice: AnyVoice
    temperature: float | None
    seed: int | None
    max_seconds: float
    language: str
    timeout: float | None


@dataclass(frozen=True)
class SpeechPiece:
    """A part of a speech.

    Attributes:
        text: what is said.
        prompt: token ids.
        options: of the generation of its audio codes.
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
        timeout: seconds from its arrival to its end; None for no limit.
    """

    spoken: SpokenText
    voice: bytes
    temperature: float
    seed: int | None
    timeout: float | None = None

    @property
    def text(self) -> str:
        return self.spoken.text

    def command(self, id: int) -> Speak:
        """Return the message to the engine."""
        return Speak(id, self.spoken, self.temperature, self.seed, self.voice, Terms(timeout=self.timeout))


AnyPiece = SpeechPiece | FramePiece


class Speech:
    """Texts as sound, and sounds as text: ``model.speech``."""

    def __init__(self, engine: ModelEngine, media: Media, requests: RequestMaker) -> None:
        self._engine = engine
        self._media = media
        self._requests = requests

    @short_traceback
    def speak(self, text: str, *, progress: SpeechProgress = None, **options: Unpack[SpeechOptions]) -> Audio:
        """Return a text as speech.

        Args:
            text: Text, up to 4,096 characters; for OuteTTS in Latin letters. It is spoken in pieces.
            progress: Called with the seconds of sound so far, after each piece.
            **options: See ``SpeechOptions``.

        Raises:
            RequestError: The model does not speak or lacks a file for it, or an argument is wrong.
        """
        import numpy as np

        parts: list[Samples] = []
        for samples in self.stream(text, **options):
            parts.append(samples)
            if progress:
                progress(sum(map(len, parts)) / RATE)
        return Audio(np.concatenate(parts), RATE)

    def stream(self, text: str, **options: Unpack[SpeechOptions]) -> Iterator[Samples]:
        """Like ``speak``, but yield the samples as they come, 24,000 a second. Closing the iterator ends it."""
        left = most_samples(options.get("max_seconds", DEFAULT_SECONDS))
        for piece in self.pieces(text, **options):
            for samples in self._sound_of(piece):
                yield samples[:left]
                left -= len(samples)
                if left <= 0:
                    return

    async def astream(self, text: str, **options: Unpack[SpeechOptions]) -> AsyncIterator[Samples]:
        """Like ``stream``, for a coroutine."""
        from asyncio import to_thread

        left = most_samples(options.get("max_seconds", DEFAULT_SECONDS))
        for piece in await to_thread(self.pieces, text, **options):
            async with aclosing(self._asound_of(piece)) as parts:
                async for samples in parts:
                    yield samples[:left]
                    left -= len(samples)
                    if left <= 0:
                        return

    def _sound_of(self, piece: AnyPiece) -> Iterator[Samples]:
        """Yield the samples of a piece."""
        if isinstance(piece, SpeechPiece):
            with Stream.open(self._engine.client, self._requests(piece.prompt, piece.options))[0] as stream:
                decoding = self.decode(stream.completion())
            try:
                yield decoding.result()
            finally:
                decoding.cancel()
            return
        speech = self.open(piece)
        try:
            while (part := speech.next().result()) is not None:
                yield part
        finally:
            speech.close()

    async def _asound_of(self, piece: AnyPiece) -> AsyncGenerator[Samples, None]:
        """Yield the samples of a piece, for a coroutine. Closing the generator ends it."""
        from asyncio import to_thread, wrap_future

        if isinstance(piece, SpeechPiece):
            async with AsyncStream.open(self._engine.client, self._requests(piece.prompt, piece.options))[0] as stream:
                completion = await stream.completion()
            yield await wrap_future(await to_thread(self.decode, completion))
            return
        speech = await to_thread(self.open, piece)
        try:
            while (part := await wrap_future(speech.next())) is not None:
                yield part
        finally:
            speech.close()

    def check(self) -> None:
        """Raise RequestError for a model that speaks with no file beside it."""
        if not self._engine.speech.type and self._outetts is None:
            raise RequestError(CANNOT_SPEAK)

    def pieces(self, text: str, **options: Unpack[SpeechOptions]) -> list[AnyPiece]:
        """Return the pieces of a speech, for a server that generates them itself. Raises as ``speak``."""
        _check_names(options, SpeechOptions.__annotations__)
        if not isinstance(text, str):
            raise RequestError(f"speech: the text must be a string, not {show_python(text)}")
        language = options.get("language", "")
        if not isinstance(language, str):
            raise RequestError(f"language must be a string such as 'english', not {show_python(language)}")
        REQUEST["timeout"].check(options.get("timeout"))
        if self._engine.speech.type:
            return [*self._frame_pieces(text, options)]
        self.check()
        if language:
            raise RequestError("language: OuteTTS reads it from the text; leave it out")
        return [*self._code_pieces(text, options)]

    def has_voice(self, name: str) -> bool:
        """Return True if the model has a voice of its own of this name, for ``voice``."""
        if not self._engine.speech.type or not name.isprintable():
            return False
        model: type[SpeechModel] = self._engine.registry.speech_models.find(self._engine.speech.type)
        return model.has_speaker(name, TokenizerVocabulary(self._engine.tokenizer()))

    def _code_pieces(self, text: str, given: SpeechOptions) -> Iterator[SpeechPiece]:
        """Yield the pieces of a speech by a language model of audio codes. Raises as ``speak``."""
        voice, temperature, seed = given.get("voice"), given.get("temperature"), given.get("seed")
        speaker = self._outetts
        assert speaker is not None
        if isinstance(voice, (str, Path)):
            voice = Voice.read(voice)
        if voice is not None and not isinstance(voice, Voice):
            raise RequestError(f"voice must be a file or a pumice.Voice, not {show_python(voice)}")
        texts = speaker.pieces(text)
        self._engine.speech.check()
        options: GenerateOptions = {
            "temperature": TEMPERATURE if temperature is None else temperature,
            "repeat_penalty": REPEAT_PENALTY,
            "stop_tokens": speaker.ends,
            "timeout": given.get("timeout"),
        }
        if seed is not None:
            options["seed"] = seed
        n_frames = most_samples(given.get("max_seconds", DEFAULT_SECONDS)) // (self._engine.facts.samples_per_code or 1)
        most = min(MOST_CODES, _CODES_AROUND + _TOKENS_PER_CODE * n_frames)
        for piece in texts:
            n_codes = min(most, _CODES_AROUND + _CODES_PER_WORD * len(speaker.words(piece)))
            prompt = self._engine.tokenizer().tokenize(speaker.prompt(piece, voice), add_special=False)
            yield SpeechPiece(piece, prompt, {**options, "max_tokens": n_codes})

    def _frame_pieces(self, text: str, given: SpeechOptions) -> Iterator[FramePiece]:
        """Yield the pieces of a speech by the speech model. Raises as ``speak``."""
        voice, temperature, seed = given.get("voice"), given.get("temperature"), given.get("seed")
        model: type[SpeechModel] = self._engine.registry.speech_models.find(self._engine.speech.type)
        spread = model.default_temperature if temperature is None else temperature
        is_number = isinstance(spread, (int, float)) and not isinstance(spread, bool)
        if not is_number or not 0 <= spread <= MAX_TEMPERATURE:
            raise RequestError(f"temperature must be a number from 0 to {MAX_TEMPERATURE}, not {show_python(spread)}")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**53):
            raise RequestError(f"seed must be a whole number from 0 to 2^53, not {show_python(seed)}")
        speaker = voice if isinstance(voice, str) and self.has_voice(voice) else ""
        if speaker:
            voice = None
        elif isinstance(voice, (str, Path)):
            voice = Audio(Path(voice))
        if voice is not None and not isinstance(voice, Audio):
            raise RequestError(
                f"voice must be a file of sound or a pumice.Audio for this model, not {show_python(voice)}"
            )
        pieces = model.pieces(text, TokenizerVocabulary(self._engine.tokenizer()), given.get("language", ""), speaker)
        samples = b"" if voice is None else voice_samples(voice).tobytes()
        self._engine.speech.check()
        most = math.ceil(most_samples(given.get("max_seconds", DEFAULT_SECONDS)) / model.samples_per_frame)
        cut = (replace(piece, max_frames=min(piece.max_frames, most)) for piece in pieces)
        return (FramePiece(piece, samples, float(spread), seed, given.get("timeout")) for piece in cut)

    def open(self, piece: FramePiece) -> SpeechStream:
        """Start to speak a piece by the speech model. Raises RequestError."""
        return self._engine.speech.open(piece.command)

    def decode(self, completion: Completion) -> Future[Samples]:
        """Return the samples of the audio codes of a piece. Raises RequestError if it has none."""
        return self._engine.speech.decode(self.codes(completion))

    def codes(self, completion: Completion) -> list[int]:
        """Return the audio codes among the tokens of a piece. Raises RequestError if it has none."""
        speaker = self._outetts
        codes = [speaker.codes[token] for token in completion.tokens if token in speaker.codes] if speaker else []
        if not codes:
            raise RequestError("speech: the model generated no audio codes; try another text, voice or seed")
        return codes

    @cached_property
    def _outetts(self) -> OuteTTS | None:
        """The form of the model's prompts; None if it does not speak by audio codes."""
        tokens = self._engine.file.metadata.get("tokenizer.ggml.tokens")
        return OuteTTS.of(tokens) if isinstance(tokens, list) else None

    # --- sounds to text

    @property
    def transcribes(self) -> bool:
        """True for a model that writes down speech, such as Whisper."""
        return transcribes(self._engine.file.metadata)

    @short_traceback
    def transcribe(self, sound: Audio | str | Path, **options: Unpack[TranscribeKeywords]) -> Transcript:
        """Return the segments of speech as they are decoded: ``for segment in model.speech.transcribe("talk.wav")``.

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
        _check_names(options, TranscribeKeywords.__annotations__)
        chosen = TranscribeOptions(**options)
        transcriber = Transcriber(_Hearing(self._engine, self._media), self._engine.file.metadata, chosen)
        transcriber.special.language(chosen.language)  # before the sound is decoded
        return Transcript(transcriber, sound.samples())


def _check_names(options: Mapping[str, object], known: Collection[str]) -> None:
    if unknown := options.keys() - known:
        raise RequestError(unknown_name("option", min(unknown), known))


class _Hearing:
    """Parts of a model by which a sound is decoded."""

    def __init__(self, engine: ModelEngine, media: Media) -> None:
        self._engine = engine
        self._media = media

    def hear(self, samples: Samples) -> Sequence[Embeddings]:
        parts = self._media.encode(Audio(samples, rate=Audio.RATE), "", SoundBudget())
        return [part.at(0) for part in parts if isinstance(part, Embeddings)]

    def decode(self, request: Request) -> Completion:
        (stream,) = Stream.open(self._engine.client, request)
        cancelled = REQUEST_CANCELLED.get()
        if cancelled is not None:
            cancelled.add_done_callback(lambda _: stream.close())
        try:
            return stream.completion()
        finally:
            stream.close()

    def align(self, rows: Sequence[Embeddings], tokens: Sequence[int], n_rows: int) -> Samples:
        ids = [*[0] * sum(span.n_rows for span in rows), *tokens]
        return self._engine.client.ask(Encode, [ids], "none", media=[rows], aligned=n_rows).result()[0]

    def spelled(self, tokens: Sequence[int]) -> str:
        return self._engine.tokenizer().detokenize(tokens)

    def tokens_of(self, text: str) -> list[int]:
        return self._engine.tokenizer().tokenize(text, add_special=False, parse_special=False)


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
