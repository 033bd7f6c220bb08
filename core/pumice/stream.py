"""What a generation gives, piece by piece and as a whole, to a thread or to a coroutine."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pumice.engine import EngineClient, FinishReason, Request, Timings
from pumice.engine.messages import Event, Failed, Finished, Logprobs, Output, Progress
from pumice.errors import ModelClosedError, RequestError

if TYPE_CHECKING:
    import asyncio

S = TypeVar("S", bound="_Sequence")


class Piece(NamedTuple):
    """A part of a stream: ``text`` that became certain with ``token``; the last has a ``finish_reason``, no token."""

    text: str
    token: int | None
    finish_reason: FinishReason | None = None
    logprobs: Logprobs | None = None


@dataclass(frozen=True)
class Completion:
    """What came after a prompt. ``tokens`` leaves out the end-of-generation token, ``text`` the stop string.

    ``logprobs`` has one for each token, where they were asked for.
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


class _Sequence:
    """One sequence of an engine: cancelled when it is closed, or when nobody refers to it any more."""

    _listener: Callable[[Event], None]  # must not refer to this object

    def __init__(self, client: EngineClient, progress: Callable[[int, int], None] | None = None) -> None:
        self._client = client
        self._pieces = Pieces(progress)
        self._closed = False
        self._id: int | None = None

    @classmethod
    def open(
        cls: type[S], client: EngineClient, request: Request, progress: Callable[[int, int], None] | None = None
    ) -> list[S]:
        """Begin: one for each of the request's completions. Raises RequestError."""
        if progress is not None and not callable(progress):
            raise RequestError(f"progress must be a function, not {progress!r:.60}")
        sequences = [cls(client, progress) for _ in range(request.n)]
        ids = client.add(request, *(sequence._listener for sequence in sequences))
        for sequence, id in zip(sequences, ids, strict=True):
            sequence._id = id
        return sequences

    def close(self) -> None:
        """Cancel what is not generated yet."""
        if not self._pieces.ended and not self._closed and self._id is not None:
            self._closed = True
            self._pieces.clear()
            self._client.cancel(self._id)

    def __repr__(self) -> str:
        state = self._pieces.finish_reason or ("closed" if self._closed else "running")
        return f"<pumice.{type(self).__name__} {state}>"

    def __del__(self) -> None:
        if self._id is not None and not self._pieces.ended:
            self._client.drop(self._id)


class Stream(_Sequence, Iterator[Piece]):
    """The pieces of one generation. After the last, ``completion`` has all of it.

    The model computes ahead of who reads. Closing the stream, leaving its loop or dropping it cancels the rest.
    """

    def __init__(self, client: EngineClient, progress: Callable[[int, int], None] | None = None) -> None:
        super().__init__(client, progress)
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        ended = threading.Event()

        def listen(event: Event) -> None:
            events.put(event)
            if isinstance(event, (Finished, Failed)):
                ended.set()

        self._events, self._ended, self._listener = events, ended, listen
        self._wants_progress = progress is not None
        self._process = os.getpid()

    def __next__(self) -> Piece:
        while (piece := self._pieces.next()) is None:
            if self._pieces.ended:
                raise StopIteration
            self._wait()
        return piece

    def completion(self) -> Completion:
        """Run to the end, and give everything.

        Nobody wakes for pieces that nobody reads yet: this thread would keep the engine's from Python's lock.
        """
        if not self._wants_progress and self._process == os.getpid():
            self._ended.wait()
        for _ in self:
            pass
        return self._pieces.completion()

    @property
    def timings(self) -> Timings:
        """Of what came by now; complete once the stream has ended or was closed."""
        while self._closed and not self._pieces.ended:
            self._wait()
        return self._pieces.timings

    def _wait(self) -> None:
        if self._process != os.getpid():
            raise ModelClosedError("this stream belongs to the process that this one was forked from")
        self._pieces.take(self._events.get(), wanted=not self._closed)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Inbox:
    """Events on their way to a coroutine; any thread may put them in."""

    def __init__(self) -> None:
        from asyncio import get_running_loop  # others need not wait for it

        self._loop = get_running_loop()
        self._thread = threading.get_ident()
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, event: Event) -> None:
        if threading.get_ident() == self._thread:
            self._arrive(event)
            return
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._arrive, event)

    def _arrive(self, event: Event) -> None:
        self._events.append(event)
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> Event:
        while not self._events:
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._events.popleft()

    def outputs(self) -> Iterator[Event]:
        """Those that are there and tell of tokens."""
        while self._events and isinstance(self._events[0], Output):
            yield self._events.popleft()


class AsyncStream(_Sequence, AsyncIterator[Piece]):
    """As ``Stream``, for the event loop it is made in."""

    def __init__(self, client: EngineClient, progress: Callable[[int, int], None] | None = None) -> None:

        super().__init__(client, progress)
        self._inbox = _Inbox()
        self._listener = self._inbox.put

    async def __anext__(self) -> Piece:
        while (piece := self._pieces.next()) is None:
            if self._pieces.ended:
                raise StopAsyncIteration
            await self._wait()
        return piece

    async def ready(self) -> list[Piece]:
        """The next pieces: as many as there are by now, at least one, and none after the last."""
        while not self._pieces.waiting and not self._pieces.ended:
            await self._wait()
            for event in self._inbox.outputs():
                self._pieces.take(event, wanted=not self._closed)
        return self._pieces.all()

    async def _wait(self) -> None:
        self._pieces.take(await self._inbox.get(), wanted=not self._closed)

    async def accepted(self) -> None:
        """Wait until the engine has taken the request. Raises as ``Model.request`` where it refuses it."""
        if self._client.confirms:
            await self._wait()

    async def completion(self) -> Completion:
        """Run to the end, and give everything."""
        while await self.ready():
            pass
        return self._pieces.completion()

    @property
    def timings(self) -> Timings:
        """Of what came by now; complete once the stream has ended."""
        return self._pieces.timings

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
