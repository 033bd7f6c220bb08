"""Track the requests that an engine in another process owes answers to, and check its events against them."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from operator import itemgetter

from pumice.embeddings import Embeddings
from pumice.engine.messages import (
    Accepted,
    AdaptersSet,
    Add,
    AnyQuestion,
    Command,
    DecodeSpeech,
    Encode,
    Encoded,
    EncodeMedia,
    Event,
    Facts,
    Failed,
    Finished,
    LayersRead,
    Logprobs,
    MediaEncoded,
    Output,
    Progress,
    PromptSaved,
    Question,
    ReadLayers,
    Request,
    SavePrompt,
    Score,
    Scored,
    SetAdapters,
    Speak,
    SpeechDecoded,
    SpeechEnded,
    SpeechPart,
)
from pumice.errors import EngineError
from pumice.process.codec import MAX_BYTES, MAX_LOADING_BYTES

_FIRST = itemgetter(0)
_SMALL = 1 << 16  # bytes of a message without vectors and log-probabilities
_STREAMS, _WIDEST = 4, 1 << 14  # residual streams of a layer, and values of a row if they are unknown
_TOP_BYTES = 16  # bytes of a token and its log-probability


class Awaited:
    """The completions and answers that an engine owes; ``facts`` is set once the engine is loaded. Thread-safe.

    Each id ends with one event. Events of other ids are dropped: ``Accepted`` may follow the end of a short completion.
    """

    def __init__(self) -> None:
        self.facts: Facts | None = None
        self._owed: dict[int, tuple[_Owed, int]] = {}  # with the maximum bytes of its answer
        self._max_bytes = MAX_BYTES
        self._lock = threading.Lock()  # guards the fields that senders change
        self._n_strays = 0  # unexpected events, minus the allowed ones

    @property
    def max_bytes(self) -> int:
        """Return the current maximum bytes of a message, which grows with the owed answers."""
        return self._max_bytes if self.facts else MAX_LOADING_BYTES

    def add(self, command: Command) -> None:
        """Register a command that is sent to the engine."""
        if isinstance(command, Add):
            for id in command.ids:
                self._put(id, _Generation(command.request))
        elif isinstance(command, Speak):
            self._put(command.id, _Speech(command))
        elif isinstance(command, Question):
            self._put(command.id, command)

    def check(self, events: Sequence[Event]) -> list[Event]:
        """Return the events of owed ids. Raises EngineError for an event that does not fit its command."""
        n_vocab, heard = self._n_vocab, []
        for event in events:
            command, size = self._owed.get(event.id, (None, 0))
            if type(event) is Output and type(command) is _Generation:
                command.take(event, n_vocab)
            elif type(event) is SpeechPart and type(command) is _Speech:
                command.take(event, self.facts.samples_per_code if self.facts else 0)
            elif command is None:
                self._count_stray(event)
                continue
            elif not self._fits(command, event):
                raise EngineError(f"unexpected answer to request {event.id}: {type(event).__name__}")
            elif not isinstance(event, (Accepted, Progress)):
                with self._lock:
                    del self._owed[event.id]
                    self._max_bytes -= size
            heard.append(event)
        return heard

    def _count_stray(self, event: Event) -> None:
        self._n_strays += 1
        if self._n_strays > 0:
            raise EngineError(f"event of request {event.id}, which does not exist or has ended")

    def _put(self, id: int, command: _Owed) -> None:
        size = self._size(command)
        with self._lock:
            self._owed[id] = command, size
            self._max_bytes += size
            self._n_strays -= 1

    @property
    def _n_vocab(self) -> int:
        return self.facts.n_vocab if self.facts else 0

    def _fits(self, command: _Owed, event: Event) -> bool:
        if isinstance(event, Failed):
            return True
        if isinstance(command, _Generation):
            return isinstance(event, (Accepted, Progress)) or (
                isinstance(event, Finished) and command.may_end(event, self._n_vocab)
            )
        if isinstance(command, _Speech):
            return isinstance(event, SpeechEnded)
        return type(event) is command.answer and self._is_right(command, event)

    def _is_right(self, command: AnyQuestion, event: Event) -> bool:
        """Return True if the value of an answer fits the question."""
        if isinstance(command, Score) and isinstance(event, Scored):
            is_long = len(event.value) == max(0, len(command.tokens) - 1)
            return is_long and _are_valid(event.value, command.n_top, self._n_vocab)
        if isinstance(command, ReadLayers) and isinstance(event, LayersRead):
            return [array.shape[:2] for array in event.value] == [
                (len(text), len(command.layers)) for text in command.texts
            ]
        if isinstance(command, SavePrompt) and isinstance(event, PromptSaved):
            return event.value <= len(command.tokens)
        if isinstance(command, EncodeMedia) and isinstance(event, MediaEncoded):
            return self._are_rows(event.value, command)
        if isinstance(command, SetAdapters) and isinstance(event, AdaptersSet):
            return set(event.value) <= set(command.adapters)
        if isinstance(command, DecodeSpeech) and isinstance(event, SpeechDecoded):
            return event.value.shape == (self._n_samples(command),)
        if isinstance(command, Encode) and isinstance(event, Encoded):
            return [array.shape for array in event.value] == self._shapes(command)
        return True

    def _are_rows(self, value: Sequence[str | Embeddings], command: EncodeMedia) -> bool:
        """Return True for embeddings of the model's width, which are no more than its context has positions."""
        if self.facts is None:
            return False
        parts = [part for part in value if isinstance(part, Embeddings)]
        rows = [part.rows for part in parts if part.rows is not None]
        kept = [part.kept for part in parts if part.kept is not None]
        widths = {one.width for one in kept} | {array.shape[-1] if array.ndim == 2 else 0 for array in rows}
        named = all(command.keep and one.n_rows > 0 and one.media.id == command.id for one in kept)
        whole = all(part.block <= part.n_rows and part.kind == command.kind for part in parts)
        n_rows = sum(part.n_rows for part in parts)
        return named and whole and widths <= {self.facts.media_width} and n_rows <= self.facts.n_ctx

    def _n_samples(self, command: DecodeSpeech) -> int:
        return len(command.codes) * self.facts.samples_per_code if self.facts else 0

    def _shapes(self, command: Encode) -> list[tuple[int, ...]]:
        if self.facts is None:
            return []
        if command.aligned:
            spans = [sum(span.n_rows for span in spans) for spans in command.media]
            return [(len(text) - n, command.aligned) for text, n in zip(command.texts, spans, strict=True)]
        width = self.facts.n_labels if command.scores else self.facts.n_embd
        per_token = command.pooling == "none" and not command.scores
        return [(len(text), width) if per_token else (width,) for text in command.texts]

    def _size(self, command: _Owed) -> int:
        """Return the maximum bytes of an answer's largest message beyond the usual limit."""
        if isinstance(command, Encode):
            return sum(4 * math.prod(shape) + _SMALL for shape in self._shapes(command))
        if isinstance(command, ReadLayers):
            n_rows = sum(map(len, command.texts)) * len(command.layers)
            return 4 * n_rows * max(_STREAMS * self.facts.n_embd, _WIDEST) + _SMALL if self.facts else 0
        if isinstance(command, EncodeMedia):
            return self.facts.media_bytes + _SMALL if self.facts and not command.keep else 0
        if isinstance(command, DecodeSpeech):
            return 4 * self._n_samples(command) + _SMALL
        if isinstance(command, Score):
            return len(command.tokens) * _TOP_BYTES * (2 + min(command.n_top, self._n_vocab))
        if isinstance(command, _Generation):
            return _TOP_BYTES * min(command.n_logprobs or 0, self._n_vocab)
        return 0


class _Generation:
    """The expected rest of a completion."""

    __slots__ = ("_n_left", "n_logprobs")

    def __init__(self, request: Request) -> None:
        most = request.max_tokens
        self.n_logprobs = request.logprobs
        self._n_left = math.inf if most is None or most < 0 else most

    def take(self, output: Output, n_vocab: int) -> None:
        """Count the tokens of an output. Raises EngineError if they are too many or invalid."""
        tokens, logprobs = output.tokens, output.logprobs
        n = len(tokens)
        self._n_left -= n
        right = n > 0 and len(output.texts) == n and max(tokens) < n_vocab and self._n_left >= 0
        if logprobs is not None:
            most = self.n_logprobs
            right = right and most is not None and len(logprobs) == n and _are_valid(logprobs, most, n_vocab)
        elif self.n_logprobs is not None:
            right = False
        if not right:
            raise EngineError(f"invalid tokens of request {output.id}")

    def may_end(self, event: Finished, n_vocab: int) -> bool:
        """Return True if the end token, if there is one, was asked for and is valid."""
        if event.end is None:
            return True
        token, logprobs = event.end
        return self.n_logprobs is not None and token < n_vocab and _are_valid([logprobs], self.n_logprobs, n_vocab)


class _Speech:
    """The expected rest of a speech."""

    __slots__ = ("_n_left",)

    def __init__(self, command: Speak) -> None:
        self._n_left = command.text.max_frames

    def take(self, part: SpeechPart, samples_per_frame: int) -> None:
        """Count the samples of a part. Raises EngineError if they are too many."""
        n = len(part.samples) if part.samples.ndim == 1 else 0
        if not n or not samples_per_frame or n % samples_per_frame:
            raise EngineError(f"invalid samples of request {part.id}")
        self._n_left -= n // samples_per_frame
        if self._n_left < 0:
            raise EngineError(f"too many samples of request {part.id}")


def _are_valid(logprobs: Sequence[Logprobs], n_top: int, n_vocab: int) -> bool:
    """Return True if no token has more than ``n_top`` alternatives, and all tokens are in the vocabulary."""
    for item in logprobs:
        top = item.top
        if len(top) > n_top or (top and max(map(_FIRST, top)) >= n_vocab):
            return False
    return True


_Owed = _Generation | _Speech | AnyQuestion
