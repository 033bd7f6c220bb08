"""Pieces of a generation, created from the engine's events, and the completion."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

from pumice.engine import EngineFinishReason, Timings
from pumice.engine.messages import Event, Failed, Finished, Logprobs, Output, Progress
from pumice.notebook import facts_line, show_count, text_block


class Piece(NamedTuple):
    """A part of a stream: a token and the text that is certain with it.

    Attributes:
        text: New text; empty while a character or a stop string may be incomplete.
        token: Token id; None in the last piece.
        finish_reason: Why the generation ended, in the last piece.
        logprobs: Log-probabilities of the token, if the request asked for them.
        end: In the last piece, the end token that the model chose and its log-probabilities, if the request asked
            for them.
    """

    text: str
    token: int | None
    finish_reason: EngineFinishReason | None = None
    logprobs: Logprobs | None = None
    end: tuple[int, Logprobs] | None = None


@dataclass(frozen=True)
class Completion:
    """The result of a generation.

    Attributes:
        text: Generated text, without the stop string that ended it.
        tokens: Generated token ids, without the end-of-generation token.
        finish_reason: Why the generation ended.
        timings: Seconds and tokens of the prompt and of the generation.
        logprobs: Log-probabilities of each token, if the request asked for them.
        end: End-of-generation token that the model chose and its log-probabilities, if the request asked for them.
    """

    text: str
    tokens: list[int]
    finish_reason: EngineFinishReason
    timings: Timings
    logprobs: list[Logprobs] | None = None
    end: tuple[int, Logprobs] | None = None

    def _repr_html_(self) -> str:
        speed = self.timings.generation_per_second
        facts = [show_count(len(self.tokens), "token"), self.finish_reason, f"{speed:.1f} tokens/s" if speed else ""]
        return text_block(self.text) + facts_line(facts)


class Pieces:
    """Conversion of the events of one sequence to pieces, and at the end to a completion.

    Attributes:
        finish_reason: Set when the sequence has finished.
        ended: True after the last event.
        timings: Timings so far; at the end those of the engine.
    """

    def __init__(self, progress: Callable[[int, int], None] | None = None) -> None:
        """``progress`` is called with the number of prompt tokens that have been read and with their total."""
        self.finish_reason: EngineFinishReason | None = None
        self.ended = False
        self.timings = Timings()
        self._clock = time.perf_counter()
        self._progress = progress
        self._coming: deque[Piece] = deque()
        self._seen: list[Piece] = []

    def take(self, event: Event, wanted: bool) -> None:
        """Take an event; of a cancelled sequence (not ``wanted``) only the end. Raises the error of a failed one."""
        if isinstance(event, Output) and wanted:
            self._note_tokens(len(event.tokens))
            logprobs = event.logprobs or repeat(None)
            self._coming += map(Piece, event.texts, event.tokens, repeat(None), logprobs)
        elif isinstance(event, Progress) and wanted:
            self._note_progress(event)
            if self._progress:
                self._progress(event.n_read, event.n_prompt)
        elif isinstance(event, Finished):
            text, reason, end = (event.text, event.reason, event.end) if wanted else ("", "cancelled", None)
            self.ended, self.finish_reason, self.timings = True, reason, event.timings
            self._coming.append(Piece(text, None, reason, end=end))
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
        """Return the seconds since the last call."""
        before, self._clock = self._clock, time.perf_counter()
        return self._clock - before

    def clear(self) -> None:
        """Drop the pieces that were not read."""
        self._coming.clear()

    def next(self) -> Piece | None:
        """Return the next piece, or None if none has arrived."""
        try:
            piece = self._coming.popleft()
        except IndexError:
            return None
        self._seen.append(piece)
        return piece

    @property
    def waiting(self) -> bool:
        """True if a piece has arrived."""
        return bool(self._coming)

    def all(self) -> list[Piece]:
        """Return the pieces that have arrived."""
        pieces = [*self._coming]
        self._seen += pieces
        self._coming.clear()
        return pieces

    @property
    def tokens(self) -> list[int]:
        """Tokens of the pieces that were read so far."""
        return [piece.token for piece in self._seen if piece.token is not None]

    def completion(self) -> Completion:
        """Return the result of a sequence whose pieces were all read."""
        assert self.finish_reason is not None
        text = "".join([piece.text for piece in self._seen])
        logprobs = [piece.logprobs for piece in self._seen if piece.logprobs is not None]
        end = self._seen[-1].end if self._seen else None
        return Completion(text, self.tokens, self.finish_reason, self.timings, logprobs or None, end)
