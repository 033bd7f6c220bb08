"""The pieces of a generation, made of its engine's events, and all of it at the end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

from pumice.engine import FinishReason, Timings
from pumice.engine.messages import Event, Failed, Finished, Logprobs, Output, Progress


class Piece(NamedTuple):
    """A part of a stream: a token and the text that became certain with it.

    The last piece of a stream has a ``finish_reason`` and no token.
    """

    text: str
    token: int | None
    finish_reason: FinishReason | None = None
    logprobs: Logprobs | None = None


@dataclass(frozen=True)
class Completion:
    """The result of a generation.

    ``tokens`` does not include the end-of-generation token, and ``text`` does not include the stop string. ``logprobs``
    has an entry for each token if the request asked for them.
    """

    text: str
    tokens: list[int]
    finish_reason: FinishReason
    timings: Timings
    logprobs: list[Logprobs] | None = None


class Pieces:
    """Events of one sequence become pieces, and at the end a completion.

    ``progress`` is called with how many tokens of the prompt are read, and of how many. ``timings`` are of what came by
    now, and at the end the engine's own.
    """

    def __init__(self, progress: Callable[[int, int], None] | None = None) -> None:
        self.finish_reason: FinishReason | None = None
        self.ended = False
        self.timings = Timings()
        self._clock = time.perf_counter()
        self._progress = progress
        self._coming: deque[Piece] = deque()
        self._seen: list[Piece] = []

    def take(self, event: Event, wanted: bool) -> None:
        """Raises the error of a sequence that failed. ``wanted`` False: it was cancelled, and only its end matters."""
        if isinstance(event, Output) and wanted:
            self._note_tokens(len(event.tokens))
            found = event.logprobs or repeat(None)
            self._coming += map(Piece, event.texts, event.tokens, repeat(None), found)
        elif isinstance(event, Progress) and wanted:
            self._note_progress(event)
            if self._progress:
                self._progress(event.n_read, event.n_prompt)
        elif isinstance(event, Finished):
            text, reason = (event.text, event.reason) if wanted else ("", "cancelled")
            self.ended, self.finish_reason, self.timings = True, reason, event.timings
            self._coming.append(Piece(text, None, reason))
        elif isinstance(event, Failed):
            self.ended = True
            raise event.error

    def _note_progress(self, event: Progress) -> None:
        seconds = self._lap()
        if event.n_read == event.n_cached:
            self.timings.queue_seconds += seconds
        self.timings.prompt_seconds = event.seconds
        self.timings.prompt_tokens, self.timings.prompt_cached = event.n_read, event.n_cached

    def _note_tokens(self, n: int) -> None:
        seconds = self._lap()
        if self.timings.generated_tokens:
            self.timings.generation_seconds += seconds
        self.timings.generated_tokens += n

    def _lap(self) -> float:
        """Seconds since the last call."""
        before, self._clock = self._clock, time.perf_counter()
        return self._clock - before

    def clear(self) -> None:
        self._coming.clear()

    def next(self) -> Piece | None:
        """The next piece, if there is one."""
        if not self._coming:
            return None
        piece = self._coming.popleft()
        self._seen.append(piece)
        return piece

    @property
    def waiting(self) -> bool:
        """Whether there is a next piece."""
        return bool(self._coming)

    def all(self) -> list[Piece]:
        """All the next pieces."""
        pieces = [*self._coming]
        self._seen += pieces
        self._coming.clear()
        return pieces

    def completion(self) -> Completion:
        assert self.finish_reason is not None
        text = "".join([piece.text for piece in self._seen])
        tokens = [piece.token for piece in self._seen if piece.token is not None]
        found = [piece.logprobs for piece in self._seen if piece.logprobs is not None]
        return Completion(text, tokens, self.finish_reason, self.timings, found or None)
