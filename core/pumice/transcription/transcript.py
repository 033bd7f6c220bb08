"""Decode a sound window by window, as Whisper's authors do (Radford et al. 2022, arXiv:2212.04356, section 4.5).

A window has 30 seconds. Its times decide where the next one begins, and its text comes before that of the next one. A
text that is improbable or repeats itself is decoded again at higher temperatures. With a batch size, windows are cut at
quiet places and decoded together, each without the text of others.
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypedDict, get_args

from pumice.embeddings import Embeddings
from pumice.engine import Request
from pumice.engine.messages import Logprobs
from pumice.errors import RequestError
from pumice.media.silence import Detector, Speech, pieces
from pumice.streaming.pieces import Completion
from pumice.transcription.segments import Cut, Segment, cuts
from pumice.transcription.vocabulary import LANGUAGES, TranscriptTokens
from pumice.transcription.words import ROW_SECONDS, Word, first_rows, timed, within, word_pieces
from pumice.wording import alternatives, show_python

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Task = Literal["transcribe", "translate"]
Granularity = Literal["segment", "word"]
RATE: Final = 16_000  # samples a second
WINDOW: Final = 30 * RATE
LEAST_SAMPLES: Final = RATE // 5  # of a last window; no word is shorter
SILENT: Final = 2.0**-16  # peak of digital silence: half a step of 16 bits
TEMPERATURES: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
MOST_RATIO: Final = 2.4  # of compression; repetitions make it larger
LEAST_LOGPROB: Final = -1.0  # mean of a window's tokens
SILENCE: Final = ((0.5, -1.0), (0.6, -0.5))  # probability that nothing is said, mean below which it decides
COHERENT: Final = 0.5  # temperature up to which a text comes before that of the next window
N_TOP = 20  # of a position's tokens with log-probabilities, among which are languages and silence
MAX_TEMPERATURE = 2.0
MAX_BATCH_SIZE = 64


class Hearing(Protocol):
    """What the decoding of a sound needs of a model."""

    def hear(self, samples: NDArray[np.float32]) -> Sequence[Embeddings]:
        """Return the rows that stand for up to 30 seconds in a prompt. Raises RequestError."""

    def decode(self, request: Request) -> Completion:
        """Return the completion of a request. Raises RequestError."""

    def align(self, rows: Sequence[Embeddings], tokens: Sequence[int], n_rows: int) -> NDArray[np.float32]:
        """Return how much each token attends to the first rows, ``[n_tokens, n_rows]``. Raises RequestError."""

    def spelled(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without those of times."""

    def tokens_of(self, text: str) -> list[int]:
        """Return the tokens of a text."""


class TranscribeKeywords(TypedDict, total=False):
    """Keywords of ``transcribe``; ``TranscribeOptions`` describes them."""

    language: str | None
    task: Task
    prompt: str
    hotwords: str
    temperature: float | None
    previous_text: bool
    timestamps: Granularity
    vad: Detector
    batch_size: int
    seed: int


@dataclass(frozen=True)
class TranscribeOptions:
    """Options of a transcript.

    Attributes:
        language: code, such as ``en``, or English name of the spoken language; None detects it in the first window.
        task: ``transcribe``, or ``translate`` to English.
        prompt: text that comes before the first window's, with names and spellings.
        hotwords: words that are expected, such as names; they come before the text of every window.
        temperature: of the sampler; None begins with 0, and raises it where a text is improbable or repeats
            itself.
        previous_text: a window's text comes before that of the next one.
        timestamps: ``word`` tells also when each word is said.
        vad: detector of speech by which silence of more than 2 seconds is skipped: ``silero`` (package silero-vad),
            ``energy`` (loudness), ``auto`` (silero if it is installed, else energy), or ``off``.
        batch_size: maximum number of windows that are decoded together, without the text of earlier ones; 1 decodes
            them in turn.
        seed: of the sampler, for temperatures above 0.
    """

    language: str | None = None
    task: Task = "transcribe"
    prompt: str = ""
    hotwords: str = ""
    temperature: float | None = None
    previous_text: bool = True
    timestamps: Granularity = "segment"
    vad: Detector = "off"
    batch_size: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in (("task", Task), ("timestamps", Granularity), ("vad", Detector)):
            if getattr(self, name) not in (known := get_args(choices)):
                raise RequestError(f"{name} must be {alternatives(known)}, not {show_python(getattr(self, name))}")
        size = self.batch_size
        if type(size) is not int or not 1 <= size <= MAX_BATCH_SIZE:
            raise RequestError(f"batch_size must be a whole number from 1 to {MAX_BATCH_SIZE}, not {show_python(size)}")
        number = self.temperature
        is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
        if number is not None and not (is_number and 0 <= number <= MAX_TEMPERATURE):
            raise RequestError(f"temperature must be a number from 0 to {MAX_TEMPERATURE}, not {show_python(number)}")
        if not isinstance(self.previous_text, bool):
            raise RequestError(f"previous_text must be True or False, not {show_python(self.previous_text)}")
        for name in ("prompt", "hotwords"):
            if not isinstance(text := getattr(self, name), str):
                raise RequestError(f"{name} must be a string, not {show_python(text)}")


@dataclass(frozen=True)
class _Decoded:
    """What a window was decoded to, with the numbers that say how well."""

    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    logprobs: Sequence[float]

    @property
    def is_silence(self) -> bool:
        return any(self.no_speech_prob > most and self.avg_logprob < least for most, least in SILENCE)

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
        self.n_positions = int(metadata[f"{metadata['general.architecture']}.context_length"])
        self._hotwords = self._tokens_of(options.hotwords)[: self.n_positions // 4]
        if options.task == "translate" and not self.special.languages:
            raise RequestError("task: the model knows English alone, and does not translate")

    def _tokens_of(self, text: str) -> list[int]:
        return self.model.tokens_of(f" {text.strip()}") if text.strip() else []

    @property
    def prompt(self) -> list[int]:
        """The tokens of the text before the first window's."""
        return self._tokens_of(self.options.prompt)

    def language(self, rows: Sequence[Embeddings]) -> tuple[str, float]:
        """Return the most probable language of a window, and its probability among those that are likely."""
        first = self._request(rows, [self.special.start], max_tokens=1)
        top = dict(_logprobs(self.model.decode(first))[0].top)
        found = {code: math.exp(top[id]) for code, id in self.special.languages.items() if id in top}
        if not found:
            return "en", 0.0
        best = max(found, key=lambda code: found[code])
        return best, found[best] / sum(found.values())

    def decode(self, rows: Sequence[Embeddings], language: str, past: Sequence[int]) -> _Decoded:
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

    def _decode_at(
        self, rows: Sequence[Embeddings], language: str, past: Sequence[int], temperature: float
    ) -> _Decoded:
        special, start, *forced = self.special, *self.special.prompt(language, self.options.task)
        most = self.n_positions // 2 - 1 - len(self._hotwords)
        before = [*self._hotwords, *past[-most:]]
        prompt = [special.previous, *before, start] if before else [start]
        chain = {"first_timestamp": special.first_time, "forced_tokens": forced, "temperature": temperature}
        n_left = self.n_positions - len(prompt)
        done = self.model.decode(self._request(rows, prompt, n_left, chain | {"seed": self.options.seed}))
        logprobs = _logprobs(done)
        tokens, own = done.tokens[len(forced) :], [item.logprob for item in logprobs[len(forced) :]]
        silence = dict(logprobs[0].top).get(special.no_speech, -math.inf) if logprobs else -math.inf
        mean = (sum(own) + (done.end[1].logprob if done.end else 0.0)) / (len(own) + 1)
        return _Decoded(tokens, temperature, mean, _compression(self.model.spelled(tokens)), math.exp(silence), own)

    def words(
        self, rows: Sequence[Embeddings], language: str, tokens: Sequence[int], logprobs: Sequence[float], n_rows: int
    ) -> list[tuple[int, Word]]:
        """Return the words of tokens of text with the numbers of their first tokens, in seconds of a window."""
        special = self.special
        before = [*special.prompt(language, self.options.task), special.first_time - 1]
        tokens = tokens[: self.n_positions - len(before) - 1]
        if not tokens:
            return []
        attention = self.model.align(rows, [*before, *tokens, special.end], n_rows)
        first = first_rows(attention[len(before) - 1 : -1])
        return timed(word_pieces(tokens, self.model.spelled, language), first.tolist(), logprobs)

    def _request(
        self, rows: Sequence[Embeddings], prompt: Sequence[int], max_tokens: int, sampling: dict[str, Any] | None = None
    ) -> Request:
        n_rows = sum(span.n_rows for span in rows)
        return Request(
            [*[0] * n_rows, *prompt],
            max_tokens=max_tokens,
            sampling=sampling or {"temperature": 0.0},
            samplers=(["timestamps"] if sampling else []) + ["temperature", "greedy", "dist"],
            logprobs=N_TOP,
            top_positions=1,
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
    _coming: list[Segment] = field(default_factory=list, init=False)
    _closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Find the speech, and detect the language, unless it is given."""
        options = self.transcriber.options
        self._speech = Speech.of(self.samples, options.vad)
        given = self.transcriber.special.language(options.language)
        self.language, self.language_probability = (given, 1.0) if given else self._detected()
        n_samples, size = len(self._speech.samples), options.batch_size
        self._windows = self._in_turn(0, n_samples) if size == 1 else self._together(size)

    def _detected(self) -> tuple[str, float]:
        heard = self._speech.samples if len(self._speech.samples) else self.samples
        return self.transcriber.language(self.transcriber.model.hear(heard[:WINDOW]))

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
            self._coming = next(self._windows)
        segment = replace(self._coming.pop(0), id=len(self._seen))
        self._seen.append(segment)
        return segment

    def close(self) -> None:
        """End the decoding."""
        self._closed, self._coming = True, []

    def _in_turn(self, first: int, end: int) -> Iterator[list[Segment]]:
        """Yield the segments of windows, each of which begins where the one before ends, and follows its text."""
        seek, past, options = first, self.transcriber.prompt, self.transcriber.options
        while not self._closed and end - seek >= (LEAST_SAMPLES if seek > first else 1):
            window = self._speech.samples[seek : min(seek + WINDOW, end)]
            if abs(window).max() < SILENT:  # Whisper writes words such as "you" for it
                seek += len(window)
                continue
            decoded, segments, heard = self._heard(seek, window, past)
            seek += min(round(heard * RATE), len(window)) or len(window)
            if not decoded.is_silence:
                keeps = options.previous_text and decoded.temperature <= COHERENT
                past = [*past, *(token for segment in segments for token in segment.tokens)] if keeps else []
            yield segments

    def _together(self, batch_size: int) -> Iterator[list[Segment]]:
        """Yield the segments of pieces that are cut at quiet places, of which several are decoded at once."""
        samples = self._speech.samples
        bounds = iter(pieces(samples) if len(samples) else ())
        running: deque[Future[list[Segment]]] = deque()
        with ThreadPoolExecutor(batch_size, "pumice-transcribe") as pool:
            try:
                while not self._closed:
                    for start, end in bounds:
                        running.append(pool.submit(copy_context().run, self._piece, start, end))
                        if len(running) > batch_size:
                            break
                    if not running:
                        return
                    yield running.popleft().result()
            finally:
                for future in running:
                    future.cancel()

    def _piece(self, start: int, end: int) -> list[Segment]:
        return [segment for segments in self._in_turn(start, end) for segment in segments]

    def _heard(
        self, start: int, window: NDArray[np.float32], past: Sequence[int]
    ) -> tuple[_Decoded, list[Segment], float]:
        """Decode the window from sample ``start``; return its segments, and the seconds that are heard."""
        transcriber, seconds = self.transcriber, len(window) / RATE
        rows = transcriber.model.hear(window)
        decoded = transcriber.decode(rows, self.language, past)
        if decoded.is_silence:
            return decoded, [], seconds
        parts, heard = cuts(decoded.tokens, transcriber.special, seconds)
        spoken = [(part, transcriber.model.spelled(part.tokens)) for part in parts]
        made = [self._segment(part, text, start, decoded) for part, text in spoken]
        if transcriber.options.timestamps == "word":
            made = self._with_words(made, rows, start, decoded, seconds)
        kept = [part.start < part.end and bool(text.strip()) for part, text in spoken]
        return decoded, [segment for segment, is_kept in zip(made, kept, strict=True) if is_kept], heard

    def _with_words(
        self, segments: Sequence[Segment], rows: Sequence[Embeddings], start: int, decoded: _Decoded, seconds: float
    ) -> list[Segment]:
        """Return a window's segments with their words, whose times are also those of the segments."""
        end = self.transcriber.special.end
        heard = [token for segment in segments for token in segment.tokens]
        texts = [pair for pair in zip(heard, decoded.logprobs, strict=False) if pair[0] < end]
        tokens, logprobs = [token for token, _ in texts], [logprob for _, logprob in texts]
        n_rows = min(math.ceil(seconds / ROW_SECONDS), sum(span.n_rows for span in rows))
        words = self.transcriber.words(rows, self.language, tokens, logprobs, n_rows)
        made: list[Segment] = []
        first = 0
        for segment in segments:
            last = first + sum(token < end for token in segment.tokens)
            own = [
                replace(word, start=self._second(start, word.start), end=self._second(start, word.end, is_end=True))
                for number, word in words
                if first <= number < last
            ]
            own = within(own, segment.start, segment.end)
            bounds = (own[0].start, own[-1].end) if own else (segment.start, segment.end)
            made.append(replace(segment, words=own, start=bounds[0], end=bounds[1]))
            first = last
        return made

    def _second(self, start: int, seconds: float, is_end: bool = False) -> float:
        """Return the second of the whole sound for one of the window from sample ``start``."""
        return self._speech.second(start + seconds * RATE, is_end)

    def _segment(self, part: Cut, text: str, start: int, decoded: _Decoded) -> Segment:
        return Segment(
            id=0,
            start=self._second(start, part.start),
            end=self._second(start, part.end, is_end=True),
            text=text,
            tokens=part.tokens,
            seek=self._second(start, 0.0),
            temperature=decoded.temperature,
            avg_logprob=decoded.avg_logprob,
            compression_ratio=decoded.compression_ratio,
            no_speech_prob=decoded.no_speech_prob,
        )
