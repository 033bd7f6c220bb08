"""Streams that outlive their connection, as in llama-server: kept by the client's `X-Conversation-Id`, and read again.

The answer is generated to its end whether or not somebody reads it; `DELETE` stops it, and so do further streams of the
client that nobody reads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from pumice.plugin.unstable import CLIENT
from pumice_server import logs
from pumice_server.errors import bad_request, openai_error, problem_of
from pumice_server.http.answers import PING_SECONDS, SSE, Streaming, event
from pumice_server.http.rates import RateLimits
from pumice_server.limits import MAX_KEPT_STREAM, MAX_NAME, MAX_UNREAD_STREAMS
from pumice_server.pools import STREAMS, Place

T = TypeVar("T")

HEADER = "x-conversation-id"
_KEPT_SECONDS = 300.0  # after the end of a stream


class KeptStream:
    """The bytes of one stream, which a task writes and any number of responses read."""

    def __init__(self, owner: str, ping: bytes | None) -> None:
        self.owner = owner
        self.started = time.time()  # noqa: TID251 (shown)
        self.completed: float | None = None
        self.expires = 0.0  # in seconds of the monotonic clock, once it has ended
        self.total = 0
        self.is_detached = False  # the request that began it has ended
        self.n_readers = 0
        self.place: Place | None = None
        self._data = bytearray()
        self._dropped = 0  # bytes before the kept ones
        self._changed = asyncio.Event()
        self._ping = ping
        self._is_stopped = self._is_written = False
        self.task: asyncio.Task[None] | None = None

    @property
    def is_done(self) -> bool:
        return self.completed is not None

    @property
    def is_unread(self) -> bool:
        """True while it is written for nobody."""
        return not (self.is_done or self.n_readers)

    def stop(self) -> None:
        """Stop writing. A task that was cancelled before its first turn would end nothing, and its readers wait."""
        self._is_stopped = True
        if self.task and self._is_written:
            self.task.cancel()

    async def write(self, parts: AsyncIterator[object]) -> None:
        """Take all parts; an error becomes the last one."""
        self._is_written = True
        pinging = asyncio.create_task(self._ping_while_quiet())
        try:
            if self._is_stopped:
                return
            async for part in parts:
                self._add(part if isinstance(part, bytes) else event(part))
        except Exception as error:
            logs.failed(error)
            self._add(event(openai_error(problem_of(error))))
        finally:
            pinging.cancel()
            self.completed, self.expires = time.time(), time.monotonic() + _KEPT_SECONDS  # noqa: TID251 (shown)
            self._notify()

    async def read(self, begin: int) -> AsyncIterator[bytes]:
        """Yield the bytes from position ``begin`` to the end. Raises HTTPException if they are not kept any more."""
        while True:
            self.check_kept(begin)
            changed = self._changed
            data = bytes(self._data[begin - self._dropped :])
            if data:
                begin += len(data)
                yield data
            elif self.is_done:
                return
            else:
                await changed.wait()

    def check_kept(self, begin: int) -> None:
        """Raise HTTPException if bytes from ``begin`` on are not kept any more."""
        if begin < self._dropped:
            raise HTTPException(410, f"the first {self._dropped} bytes of this stream are not kept any more")

    def _add(self, part: bytes) -> None:
        self._data += part
        self.total += len(part)
        if (n_more := len(self._data) - MAX_KEPT_STREAM) > 0:
            del self._data[:n_more]
            self._dropped += n_more
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _ping_while_quiet(self) -> None:
        """Keep connections open: pings are among the bytes, since clients count those."""
        while self._ping is not None:
            before = self.total
            await asyncio.sleep(PING_SECONDS)
            if self.total == before:
                self._add(self._ping)


class KeptStreams:
    """The kept streams of all clients, by client and conversation."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, str], KeptStream] = {}

    def add(self, id: str, stream: KeptStream) -> None:
        """Keep a stream, in place of the conversation's earlier one, which is stopped.

        Where there is no place, an older one goes: one that has ended, or one of the client that nobody reads.
        Raises HTTPException if there is none.
        """
        self.stop(id, stream.owner)
        self._forget_old()
        while True:
            try:
                stream.place = STREAMS.take()
                break
            except HTTPException:
                client = CLIENT.get()
                ended = [key for key, other in self._streams.items() if other.is_done]
                own = [key for key, other in self._streams.items() if other.place and other.place.client == client]
                unread = [key for key in own if self._streams[key].is_unread]
                oldest = next(iter([key for key in ended if key in own] or ended or unread), None)
                if oldest is None:
                    raise
                self._forget(oldest)
        self._streams[stream.owner, id] = stream

    def find(self, id: str, owner: str) -> KeptStream | None:
        self._forget_old()
        return self._streams.get((owner, id))

    def read(self, stream: KeptStream, begin: int, end: Callable[[], None] = lambda: None) -> Streaming[Any]:
        """Return the response that reads a stream from a position; ``end`` is called at its end."""
        stream.n_readers += 1

        def leave() -> None:
            stream.n_readers -= 1
            end()
            self._stop_unread(stream.place)

        return Streaming(stream.read(begin), leave, ping=None)

    def stop(self, id: str, owner: str) -> None:
        """Stop and forget a conversation's stream, if there is one."""
        if (owner, id) in self._streams:
            self._forget((owner, id))

    def _stop_unread(self, place: Place | None) -> None:
        """Stop the oldest streams of a client that nobody reads, beyond a few: an engine has few slots."""
        own = [
            (key, other)
            for key, other in self._streams.items()
            if place and other.place and other.place.client == place.client and other.is_unread
        ]
        for key, _ in own[: max(0, len(own) - MAX_UNREAD_STREAMS)]:
            self._forget(key)

    def _forget_old(self) -> None:
        old = [key for key, stream in self._streams.items() if stream.is_done and stream.expires < time.monotonic()]
        for key in old:
            self._forget(key)

    def _forget(self, key: tuple[str, str]) -> None:
        stream = self._streams.pop(key)
        stream.stop()
        if stream.place:
            stream.place.release()


def streaming(request: Request, parts: AsyncIterator[T | bytes], end: Callable[[], None]) -> Streaming[T]:
    """Return the response that streams ``parts``, kept if the request names a conversation; ``end`` is called once."""
    id = request.headers.get(HEADER, "")
    if not id:
        return Streaming(parts, end)
    if len(id) > MAX_NAME:
        end()
        raise bad_request(f"X-Conversation-Id has {len(id)} characters, more than {MAX_NAME}")
    streams: KeptStreams = request.app.state.streams
    stream = KeptStream(request.state.client, SSE.ping)
    try:
        streams.add(id, stream)
    except HTTPException:
        end()
        raise
    held: AsyncExitStack = request.state.stack.pop_all()  # the model stays loaded until the end of the stream
    stream.task = asyncio.create_task(_write(stream, parts, end, held, request.app.state.rates))

    def detach() -> None:
        stream.is_detached = True

    return streams.read(stream, 0, detach)


async def _write(
    stream: KeptStream, parts: AsyncIterator[object], end: Callable[[], None], held: AsyncExitStack, rates: RateLimits
) -> None:
    async with held:
        try:
            await stream.write(parts)
        finally:
            before = logs.n_tokens()
            end()
            if stream.is_detached:  # the request was counted without these
                rates.end(stream.owner, logs.n_tokens() - before)
