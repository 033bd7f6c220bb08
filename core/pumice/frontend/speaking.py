"""Speech: texts as sound, by language models of audio codes and their vocoders."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pumice.audio import Audio
from pumice.errors import RequestError
from pumice.frontend.generating import Generating
from pumice.options import GenerateOptions
from pumice.speech.outetts import OuteTTS
from pumice.speech.vocoder import MOST_CODES
from pumice.speech.voice import Voice
from pumice.speech.waveform import RATE
from pumice.streaming.pieces import Completion
from pumice.tracebacks import short_traceback

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_SECONDS = 1800.0  # of a speech
DEFAULT_SECONDS = 600.0
TEMPERATURE, REPEAT_PENALTY = 0.1, 1.1  # those of the package outetts
_CODES_PER_WORD = 120  # at most: 1.6 seconds
_CODES_AROUND = 225
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


class Speaking(Generating):
    """Speech with a model that generates audio codes, and a vocoder beside it."""

    @abstractmethod
    def check_speaks(self) -> None:
        """Raise RequestError for a model without a vocoder, before anything is generated."""

    @abstractmethod
    def decode_speech(self, codes: Sequence[int]) -> Future[NDArray[np.float32]]:
        """Return the samples of audio codes, 24,000 a second. Raises RequestError."""

    @short_traceback
    def speak(
        self,
        text: str,
        *,
        voice: Voice | str | Path | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        max_seconds: float = DEFAULT_SECONDS,
        progress: SpeechProgress = None,
    ) -> Audio:
        """Return a text as speech.

        Args:
            text: Text in Latin letters, up to 4,096 characters. Each piece of up to 30 words is spoken on its own.
            voice: File of a voice in OuteTTS's form, or a voice that was read. None leaves the voice to the model.
            temperature: Temperature of the sampler. None is 0.1.
            seed: Seed of the sampler. None is random.
            max_seconds: Where the sound ends at the latest, up to 1,800 seconds.
            progress: Called with the seconds of sound so far, after each piece.

        Raises:
            RequestError: The model does not speak or has no vocoder, or an argument is wrong.
        """
        import numpy as np

        parts: list[NDArray[np.float32]] = []
        stream = self.speak_stream(text, voice=voice, temperature=temperature, seed=seed, max_seconds=max_seconds)
        for samples in stream:
            parts.append(samples)
            if progress:
                progress(sum(map(len, parts)) / RATE)
        return Audio(np.concatenate(parts), RATE)

    def speak_stream(
        self,
        text: str,
        *,
        voice: Voice | str | Path | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        max_seconds: float = DEFAULT_SECONDS,
    ) -> Iterator[NDArray[np.float32]]:
        """Like ``speak``, but yield the samples of each piece, 24,000 a second. Closing the iterator ends it."""
        left = most_samples(max_seconds)
        for piece in self.speech_pieces(text, voice, temperature, seed):
            with self.stream(piece.prompt, **piece.options) as stream:
                codes = self.speech_codes(stream.completion())
            with self._waiting(self.decode_speech(codes)) as samples:
                yield samples[:left]
            left -= len(samples)
            if left <= 0:
                return

    async def aspeak_stream(
        self,
        text: str,
        *,
        voice: Voice | str | Path | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        max_seconds: float = DEFAULT_SECONDS,
    ) -> AsyncIterator[NDArray[np.float32]]:
        """Like ``speak_stream``, for a coroutine."""
        from asyncio import to_thread, wrap_future

        left = most_samples(max_seconds)
        for piece in await to_thread(self.speech_pieces, text, voice, temperature, seed):
            async with self.astream(piece.prompt, **piece.options) as stream:
                codes = self.speech_codes(await stream.completion())
            samples = await wrap_future(await to_thread(self.decode_speech, codes))
            yield samples[:left]
            left -= len(samples)
            if left <= 0:
                return

    def speech_pieces(
        self,
        text: str,
        voice: Voice | str | Path | None = None,
        temperature: float | None = None,
        seed: int | None = None,
    ) -> list[SpeechPiece]:
        """Return the pieces of a speech, for a server that generates them itself. Raises as ``speak``."""
        speaker = self._speaker
        if speaker is None:
            raise RequestError(
                "this model does not speak: its vocabulary has no audio codes of OuteTTS 0.2 or 0.3 (<|0|>, ...)"
            )
        if not isinstance(text, str):
            raise RequestError(f"speech: the text must be a string, not {text!r:.60}")
        if isinstance(voice, (str, Path)):
            voice = Voice.read(voice)
        if voice is not None and not isinstance(voice, Voice):
            raise RequestError(f"voice must be a file or a pumice.Voice, not {voice!r:.60}")
        texts = speaker.pieces(text)
        self.check_speaks()
        options: GenerateOptions = {
            "temperature": TEMPERATURE if temperature is None else temperature,
            "repeat_penalty": REPEAT_PENALTY,
            "stop_tokens": speaker.ends,
        }
        if seed is not None:
            options["seed"] = seed
        pieces = []
        for piece in texts:
            n_codes = min(MOST_CODES, _CODES_AROUND + _CODES_PER_WORD * len(speaker.words(piece)))
            prompt = self.tokenize(speaker.prompt(piece, voice), add_special=False)
            pieces.append(SpeechPiece(piece, prompt, {**options, "max_tokens": n_codes}))
        return pieces

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


def most_samples(seconds: float) -> int:
    """Return the samples of a number of seconds. Raises RequestError for one beyond the limit."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= MAX_SECONDS:
        raise RequestError(f"max_seconds must be a number above 0 and up to {MAX_SECONDS:.0f}, not {seconds!r:.60}")
    return max(1, round(seconds * RATE))
