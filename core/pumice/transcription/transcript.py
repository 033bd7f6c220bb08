"""Decode a sound window by window, as Whisper's authors do (Radford et al. 2022, arXiv:2212.04356, section 4.5).

A window has 30 seconds. Its times decide where the next one begins, and its text comes before that of the next one. A
text that is improbable or repeats itself is decoded again at higher temperatures.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypedDict, get_args

from pumice.engine import Request
from pumice.engine.messages import Logprobs, Span
from pumice.errors import RequestError
from pumice.streaming.pieces import Completion
from pumice.transcription.segments import Cut, Segment, cuts
from pumice.transcription.vocabulary import ARCHITECTURE, LANGUAGES, TranscriptTokens
from pumice.wording import show_python

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Task = Literal["transcribe", "translate"]
RATE: Final = 16_000  # samples a second
WINDOW: Final = 30 * RATE
LEAST_SAMPLES: Final = RATE // 5  # of a last window; no word is shorter
TEMPERATURES: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
MOST_RATIO: Final = 2.4  # of compression; repetitions make it larger
LEAST_LOGPROB: Final = -1.0  # mean of a window's tokens
MOST_SILENCE: Final = 0.6  # probability that nothing is said
COHERENT: Final = 0.5  # temperature up to which a text comes before that of the next window
N_TOP = 20  # of a position's tokens with log-probabilities, among which are languages and silence
MAX_TEMPERATURE = 2.0


class Hearing(Protocol):
    """What the decoding of a sound needs of a model."""

    def hear(self, samples: NDArray[np.float32]) -> Sequence[Span]:
        """Return the rows that stand for up to 30 seconds in a prompt. Raises RequestError."""

    def decode(self, request: Request) -> Completion:
        """Return the completion of a request. Raises RequestError."""

    def spelled(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without those of times."""

    def tokens_of(self, text: str) -> list[int]:
        """Return the tokens of a text."""


class TranscribeKeywords(TypedDict, total=False):
    """Keywords of ``transcribe``; ``TranscribeOptions`` describes them."""

    language: str | None
    task: Task
    prompt: str
    temperature: float | None
    previous_text: bool
    seed: int


@dataclass(frozen=True)
class TranscribeOptions:
    """Options of a transcript.

    Attributes:
        language: code, such as ``en``, or English name of the spoken language; None detects it in the first window.
        task: ``transcribe``, or ``translate`` to English.
        prompt: text that comes before the first window's, with names and spellings.
        temperature: of the sampler; None begins with 0, and raises it where a text is improbable or repeats
            itself.
        previous_text: a window's text comes before that of the next one.
        seed: of the sampler, for temperatures above 0.
    """

    language: str | None = None
    task: Task = "transcribe"
    prompt: str = ""
    temperature: float | None = None
    previous_text: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.task not in get_args(Task):
            raise RequestError(f"task must be 'transcribe' or 'translate', not {show_python(self.task)}")
        number = self.temperature
        is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
        if number is not None and not (is_number and 0 <= number <= MAX_TEMPERATURE):
            raise RequestError(f"temperature must be a number from 0 to {MAX_TEMPERATURE}, not {show_python(number)}")
        if not isinstance(self.prompt, str):
            raise RequestError(f"prompt must be a string, not {show_python(self.prompt)}")


@dataclass(frozen=True)
class _Decoded:
    """What a window was decoded to, with the numbers that say how well."""

    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float

    @property
    def is_silence(self) -> bool:
        return self.no_speech_prob > MOST_SILENCE and self.avg_logprob < LEAST_LOGPROB

    @property
    def is_good(self) -> bool:
        return self.is_silence or (self.compression_ratio <= MOST_RATIO and self.avg_logprob >= LEAST_LOGPROB)


class Transcriber:
    """Decodes windows of sound with a model."""

    def __init__(self, model: Hearing, metadata: Mapping[str, Any], options: TranscribeOptions) -> None:
        """Raises RequestError for a model that is no Whisper, and for a language or task that it does not know."""
        self.model = model
        self.options = options
        self.special = TranscriptTokens.of(metadata)
        self.n_positions = int(metadata[f"{ARCHITECTURE}.context_length"])
        if options.task == "translate" and not self.special.languages:
            raise RequestError("task: the model knows English alone, and does not translate")

    def language(self, rows: Sequence[Span]) -> tuple[str, float]:
        """Return the most probable language of a window, and its probability among those that are likely."""
        first = self._request(rows, [self.special.start], max_tokens=1)
        top = dict(_logprobs(self.model.decode(first))[0].top)
        found = {code: math.exp(top[id]) for code, id in self.special.languages.items() if id in top}
        if not found:
            return "en", 0.0
        best = max(found, key=lambda code: found[code])
        return best, found[best] / sum(found.values())

    def decode(self, rows: Sequence[Span], language: str, past: Sequence[int]) -> _Decoded:
        """Return the tokens of a window after those of earlier ones."""
        own = self.options.temperature
        tried: list[_Decoded] = []
        for temperature in TEMPERATURES if own is None else (own,):
            decoded = self._decode_at(rows, language, past, temperature)
            if decoded.is_good or own is not None:
                return decoded
            tried.append(decoded)
        short = [decoded for decoded in tried if decoded.compression_ratio <= MOST_RATIO]
        return max(short or tried, key=lambda decoded: decoded.avg_logprob)

    def _decode_at(self, rows: Sequence[Span], language: str, past: Sequence[int], temperature: float) -> _Decoded:
        special, start, *forced = self.special, *self.special.prompt(language, self.options.task)
        most = self.n_positions // 2 - 1
        prompt = [special.previous, *past[-most:], start] if past else [start]
        chain = {"first_timestamp": special.first_time, "forced_tokens": forced, "temperature": temperature}
        n_left = self.n_positions - len(prompt)
        done = self.model.decode(self._request(rows, prompt, n_left, chain | {"seed": self.options.seed}))
        logprobs = _logprobs(done)
        tokens, own = done.tokens[len(forced) :], logprobs[len(forced) :]
        silence = dict(logprobs[0].top).get(special.no_speech, -math.inf) if logprobs else -math.inf
        mean = sum(item.logprob for item in own) / len(own) if own else 0.0
        return _Decoded(tokens, temperature, mean, _compression(self.model.spelled(tokens)), math.exp(silence))

    def _request(
        self, rows: Sequence[Span], prompt: Sequence[int], max_tokens: int, sampling: dict[str, Any] | None = None
    ) -> Request:
        n_rows = sum(span.n_rows for span in rows)
        return Request(
            [*[0] * n_rows, *prompt],
            max_tokens=max_tokens,
            sampling=sampling or {"temperature": 0.0},
            samplers=(["timestamps"] if sampling else []) + ["temperature", "greedy", "dist"],
            logprobs=N_TOP,
            media=rows,
        )


def _logprobs(done: Completion) -> Sequence[Logprobs]:
    return done.logprobs or []


def _compression(text: str) -> float:
    data = text.encode()
    return len(data) / len(zlib.compress(data)) if data else 0.0


@dataclass(eq=False)
class Transcript(Iterator[Segment]):
    """The segments of a transcript, as they are decoded. Closing it, or leaving its loop, ends the decoding.

    Attributes:
        samples: float32 ``[n]``, 16,000 a second.
        language: code of the spoken language.
        language_probability: 1 for one that was given.
    """

    transcriber: Transcriber
    samples: NDArray[np.float32]
    language: str = field(init=False)
    language_probability: float = field(init=False)
    _seen: list[Segment] = field(default_factory=list, init=False)
    _seek: int = field(default=0, init=False)  # sample at which the next window begins
    _past: list[int] = field(default_factory=list, init=False)
    _coming: list[Segment] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Detect the language, unless it is given."""
        special, options = self.transcriber.special, self.transcriber.options
        given = special.language(options.language)
        self.language, self.language_probability = (given, 1.0) if given else self._detected()
        if options.prompt.strip():
            self._past = self.transcriber.model.tokens_of(f" {options.prompt.strip()}")

    def _detected(self) -> tuple[str, float]:
        return self.transcriber.language(self.transcriber.model.hear(self.samples[:WINDOW]))

    @property
    def language_name(self) -> str:
        """English name of the spoken language."""
        return LANGUAGES.get(self.language, self.language)

    @property
    def duration(self) -> float:
        """Seconds of the sound."""
        return len(self.samples) / RATE

    @property
    def text(self) -> str:
        """The whole text; decodes what is left."""
        for _ in self:
            pass
        return "".join(segment.text for segment in self._seen).strip()

    @property
    def segments(self) -> list[Segment]:
        """The segments so far."""
        return list(self._seen)

    def __next__(self) -> Segment:
        while not self._coming:
            if len(self.samples) - self._seek < (LEAST_SAMPLES if self._seek else 1):
                raise StopIteration
            self._coming = self._next_window()
        segment = self._coming.pop(0)
        self._seen.append(segment)
        return segment

    def close(self) -> None:
        """End the decoding."""
        self._seek, self._coming = len(self.samples), []

    def _next_window(self) -> list[Segment]:
        """Decode the next window, and move to the one after it."""
        start, transcriber = self._seek, self.transcriber
        window = self.samples[start : start + WINDOW]
        decoded = transcriber.decode(transcriber.model.hear(window), self.language, self._past)
        if decoded.is_silence:
            self._seek += len(window)
            return []
        parts, heard = cuts(decoded.tokens, transcriber.special, len(window) / RATE)
        self._seek += min(round(heard * RATE), len(window)) or len(window)
        number = len(self._seen) + len(self._coming)
        spoken = [(part, self.transcriber.model.spelled(part.tokens)) for part in parts if part.start < part.end]
        spoken = [(part, text) for part, text in spoken if text.strip()]
        made = [self._segment(number + i, *pair, start, decoded) for i, pair in enumerate(spoken)]
        if not transcriber.options.previous_text or decoded.temperature > COHERENT:
            self._past = []
        else:
            self._past += [token for segment in made for token in segment.tokens]
        return made

    def _segment(self, number: int, part: Cut, text: str, start: int, decoded: _Decoded) -> Segment:
        return Segment(
            id=number,
            start=start / RATE + part.start,
            end=start / RATE + part.end,
            text=text,
            tokens=part.tokens,
            seek=start / RATE,
            temperature=decoded.temperature,
            avg_logprob=decoded.avg_logprob,
            compression_ratio=decoded.compression_ratio,
            no_speech_prob=decoded.no_speech_prob,
        )
