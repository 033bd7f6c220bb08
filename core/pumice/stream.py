"""What a generation gives, piece by piece and as a whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pumice.engine import FinishReason, Sequence, Timings
from pumice.engine.text import TextStream


@dataclass(frozen=True)
class Piece:
    """A part of a stream: ``text`` that became certain with ``token``; the last has a ``finish_reason``, no token."""

    text: str
    token: int | None
    finish_reason: FinishReason | None = None


@dataclass(frozen=True)
class Completion:
    """What came after a prompt. ``tokens`` leaves out the end-of-generation token, ``text`` the stop string."""

    text: str
    tokens: list[int]
    finish_reason: FinishReason
    timings: Timings


class Stream(Iterator[Piece]):
    """The pieces of one generation. After the last, ``completion`` has all of it.

    ``step`` brings the sequence forward by at least a token or ends it; ``cancel`` ends it.
    """

    def __init__(
        self,
        sequence: Sequence,
        text: TextStream,
        step: Callable[[Sequence], None],
        cancel: Callable[[Sequence], None],
    ) -> None:
        self._sequence = sequence
        self._sequence.on_token = self._take
        self._text = text
        self._step = step
        self._cancel = cancel
        self._pieces: deque[Piece] = deque()
        self._written: list[str] = []
        self._finish_reason: FinishReason | None = None

    def __next__(self) -> Piece:
        if self._finish_reason:
            raise StopIteration
        while not self._pieces and not self._sequence.finish_reason:
            self._step(self._sequence)
        piece = self._pieces.popleft() if self._pieces else self._end()
        self._written.append(piece.text)
        return piece

    def completion(self) -> Completion:
        """Run to the end, and give everything."""
        for _ in self:
            pass
        assert self._finish_reason is not None
        text = "".join(self._written)
        return Completion(text, list(self._sequence.generated), self._finish_reason, self.timings)

    @property
    def timings(self) -> Timings:
        return self._sequence.timings

    def close(self) -> None:
        """Cancel what is not generated yet."""
        self._cancel(self._sequence)
        self._pieces.clear()

    def _take(self, token: int) -> None:
        """Called by the engine, so that a stop string ends the sequence in the step that completes it."""
        self._pieces.append(Piece(self._text.push(token), token))
        if self._text.stopped:
            self._sequence.finish_reason = "stop"

    def _end(self) -> Piece:
        self._finish_reason = self._sequence.finish_reason
        return Piece(self._text.finish(), None, self._finish_reason)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
