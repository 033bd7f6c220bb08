"""Streams: a generation piece by piece, for a thread or for a coroutine."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pumice.clients import cancelled_request
from pumice.engine import EngineClient, Request, Timings
from pumice.engine.messages import Event, Failed, Finished, Output
from pumice.errors import ModelClosedError, RequestError
from pumice.streaming.pieces import Completion, Piece, Pieces
from pumice.wording import show_python

if TYPE_CHECKING:
    import asyncio

S = TypeVar("S", bound="_Sequence")


class _Sequence:
    """One sequence of an engine, cancelled when it is closed or has no references left."""

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
        """Submit a request, and return a stream for each of its completions. Raises RequestError."""
        if progress is not None and not callable(progress):
            raise RequestError(f"progress must be a function, not {show_python(progress)}")
        sequences = [cls(client, progress) for _ in range(request.n)]
        ids = client.add(request, *(sequence._listener for sequence in sequences))
        for sequence, id in zip(sequences, ids, strict=True):
            sequence._id = id
        return sequences

    def close(self) -> None:
        """Cancel the rest of the generation."""
        if not self._pieces.ended and not self._closed and self._id is not None:
            self._closed = True
            self._pieces.clear()
            self._client.cancel(self._id)

    def end_reasoning(self) -> None:
        """End the reasoning that goes on after its next token, if the request has a reasoning budget."""
        if not self._pieces.ended and not self._closed and self._id is not None:
            self._client.end_reasoning(self._id)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a stream cannot be pickled or copied, since it is a running generation; send its text, or completion()"
        )

    def __repr__(self) -> str:
        state = self._pieces.finish_reason or ("closed" if self._closed else "running")
        return f"<pumice.{type(self).__name__} {state}>"

    def __del__(self) -> None:
        if self._id is not None and not self._pieces.ended:
            self._client.drop(self._id)


class Stream(_Sequence, Iterator[Piece]):
    """An iterator over the pieces of one generation; ``completion`` returns the whole result.

    The model computes ahead of the reader. Closing the stream, leaving its loop or dropping it cancels the rest.
    Threads that read one stream share its pieces: each piece goes to one of them.
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
        self._reading = threading.Lock()  # held while waiting, so that no thread waits after the last event
        self._wants_progress = progress is not None
        self._process = os.getpid()

    def __next__(self) -> Piece:
        while (piece := self._pieces.next()) is None:
            if self._pieces.ended:
                raise StopIteration
            self._wait()
        return piece

    def completion(self) -> Completion:
        """Read to the end and return the whole result.

        The thread sleeps until the end: waking up for each piece would take Python's lock from the engine's thread.
        """
        if not self._wants_progress and self._process == os.getpid():
            self._ended.wait()
        for _ in self:
            pass
        return self._pieces.completion()

    @property
    def timings(self) -> Timings:
        """Timings so far; complete when the stream has ended or was closed."""
        while self._closed and not self._pieces.ended:
            self._wait()
        return self._pieces.timings

    def _wait(self) -> None:
        if self._process != os.getpid():
            raise ModelClosedError("this stream belongs to the process that this one was forked from")
        with self._reading:
            if not self._pieces.ended:
                self._pieces.take(self._events.get(), wanted=not self._closed)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Inbox:
    """Queue of events for a coroutine; any thread may put events in."""

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
        """Take the events with tokens that have arrived."""
        while self._events and isinstance(self._events[0], Output):
            yield self._events.popleft()


class AsyncStream(_Sequence, AsyncIterator[Piece]):
    """Like ``Stream``, for the event loop in which it was created."""

    def __init__(self, client: EngineClient, progress: Callable[[int, int], None] | None = None) -> None:
        from asyncio import Lock

        super().__init__(client, progress)
        self._inbox = _Inbox()
        self._reading = Lock()
        self._listener = self._inbox.put
        self._prepare: Callable[[], Request] | None = None  # makes the request when the first piece is wanted
        self._prepared: asyncio.Task[Request] | None = None  # what it does in a thread

    @classmethod
    def later(
        cls, client: EngineClient, prepare: Callable[[], Request], progress: Callable[[int, int], None] | None = None
    ) -> AsyncStream:
        """Return the stream of a request that a thread makes when the first piece is wanted; that raises its errors."""
        stream = cls(client, progress)
        stream._prepare = prepare
        return stream

    def close(self) -> None:
        """Cancel the rest of the generation."""
        if self._id is None:
            self._closed = True
        super().close()

    async def __anext__(self) -> Piece:
        while (piece := self._pieces.next()) is None:
            if self._pieces.ended:
                raise StopAsyncIteration
            await self._wait()
        return piece

    async def ready(self) -> list[Piece]:
        """Wait for the next pieces and return those that have arrived; an empty list after the last."""
        while not self._pieces.waiting and not self._pieces.ended:
            await self._wait()
            for event in self._inbox.outputs():
                self._pieces.take(event, wanted=not self._closed)
        return self._pieces.all()

    async def _wait(self) -> None:
        async with self._reading:
            if self._prepare is not None:
                await self._submit(self._prepare)
            if not self._pieces.ended:
                self._pieces.take(await self._inbox.get(), wanted=not self._closed)

    async def _submit(self, prepare: Callable[[], Request]) -> None:
        """Send the request once it is prepared, or put its error into the inbox; a cancelled caller may come again."""
        from asyncio import create_task, shield, to_thread

        if self._prepared is None and not self._closed:
            self._prepared = create_task(to_thread(prepare))
            self._prepared.add_done_callback(lambda done: done.cancelled() or done.exception())  # maybe nobody waits
        try:
            request = await shield(self._prepared) if self._prepared else None
            if request is None or self._closed:
                raise cancelled_request()
            (self._id,) = self._client.add(request, self._listener)
        except Exception as error:
            self._inbox.put(Failed(0, error))
        self._prepare = None

    async def accepted(self) -> None:
        """Wait until the engine accepts the request. Raises RequestError if it refuses it."""
        if self._prepare is not None:
            await self._submit(self._prepare)
        if self._client.confirms:
            await self._wait()

    async def completion(self) -> Completion:
        """Read to the end and return the whole result."""
        while await self.ready():
            pass
        return self._pieces.completion()

    @property
    def tokens(self) -> list[int]:
        """Tokens of the pieces that were read so far."""
        return self._pieces.tokens

    @property
    def timings(self) -> Timings:
        """Timings so far; complete when the stream has ended."""
        return self._pieces.timings

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
