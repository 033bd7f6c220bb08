"""HTTP responses: JSON, or server-sent events while text is generated. Generation ends when its client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec
import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pumice.plugin.unstable import Problem
from pumice_server import logs
from pumice_server.errors import error_body, problem_of
from pumice_server.work import aside

T = TypeVar("T")
Write = Callable[[bytes], bool]
"""Writes a part of a response at once, or returns False if the client has not taken earlier parts yet."""

WRITE = "pumice.write"  # ASGI extension under which a protocol offers a Write
JSON = "application/json"
DONE = b"data: [DONE]\n\n"
_MARK = "\ue000"  # from Unicode's private use area: no model name contains it
_PART = 128 << 10  # bytes of a response that are sent at once
_PING = b":\n\n"  # comment of server-sent events, which keeps connections open
PING_SECONDS = 30.0  # between two comments while nothing else is sent


class Whole(Response, Generic[T]):
    """A value as JSON, or a file, sent in parts so that a slow client needs little memory."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for begin in range(0, max(1, len(self.body)), _PART):
            end = begin + _PART
            part = {"type": "http.response.body", "body": self.body[begin:end], "more_body": end < len(self.body)}
            await send(part)
            await asyncio.sleep(0)  # let other requests run, however fast the client reads


def titled(response: Response) -> Response:
    """Return the response with header names as llama-server writes them, for clients that compare case."""
    response.raw_headers = [(name.title(), value) for name, value in response.raw_headers]
    return response


def json_response(value: T) -> Whole[T]:
    return Whole(to_json(value), media_type=JSON)


async def make_answer(make: Callable[[], T], size: int) -> Whole[T]:
    """Return ``make()`` as JSON of about ``size`` bytes, built off the event loop if it is large."""
    return await aside(lambda: json_response(make()), size=size)


def to_json(value: Any) -> bytes:
    """Encode a value. Infinities become null, arrays of NumPy lists; keys may be integers.

    A field of a struct is left out if it has its default, None or UNSET.
    """
    return orjson.dumps(value, _fields, orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)


def _fields(value: object) -> dict[str, Any]:
    """Return the fields of a struct by their names in JSON. Raises TypeError for any other object."""
    if not isinstance(value, msgspec.Struct):
        raise TypeError(f"{type(value).__name__} is no JSON")
    fields = ((name, getattr(value, attribute), absent) for name, attribute, absent in _described(type(value)))
    return {name: item for name, item, absent in fields if item is not absent}


@cache
def _described(kind: type[msgspec.Struct]) -> Sequence[tuple[str, str, object]]:
    """Return of each field its name in JSON, its attribute, and the value for which it is left out."""
    absent = (None, msgspec.UNSET)
    return [
        (field.encode_name, field.name, field.default if field.default in absent else msgspec.NODEFAULT)
        for field in msgspec.structs.fields(kind)
    ]


def line(value: Any) -> bytes:
    """Return a line of JSON."""
    return to_json(value) + b"\n"


def event(value: Any, name: str = "") -> bytes:
    """Return a server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + to_json(value) + b"\n\n"


class Frame:
    """Builds events that differ only in one text. The rest is encoded once."""

    def __init__(self, make: Callable[[str], bytes]) -> None:
        self._before, self._after = make(_MARK).split(to_json(_MARK))

    def __call__(self, text: str) -> bytes:
        return self._before + to_json(text) + self._after


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``. If the client disconnects, cancel it and raise ClientDisconnect."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for unfinished in (task, gone):
            unfinished.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@dataclass(frozen=True)
class Wire:
    """How a stream is written.

    Attributes:
        media_type: Media type of the response.
        encode: Returns the bytes of a part.
        ping: Sent while no part comes; None: nothing.
        error: Returns the last part after an error; None: that is encoded in the format of the path's protocol.
    """

    media_type: str
    encode: Callable[[Any], bytes]
    ping: bytes | None
    error: Callable[[Problem], bytes] | None = None


SSE = Wire("text/event-stream", event, _PING)
NDJSON = Wire("application/x-ndjson", line, None)


class Streaming(StreamingResponse, Generic[T]):
    """Parts of an answer, sent as they come, with pings in between.

    Args:
        parts: Parts of the type ``T``, which are encoded, or bytes.
        end: Called once, whether or not the client has read all.
        wire: How parts are written.
        ping: Seconds between two pings; None: no pings.
    """

    def __init__(
        self,
        parts: AsyncIterator[T | bytes],
        end: Callable[[], None],
        wire: Wire = SSE,
        ping: float | None = PING_SECONDS,
    ) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__((), headers=headers, media_type=wire.media_type)
        self._parts = parts
        self._end = end
        self._wire = wire
        self._ping_seconds = ping
        self._write: Write | None = None
        self._scope: Scope = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._write, self._scope = scope.get("extensions", {}).get(WRITE), scope
        try:
            if scope.get("method") == "HEAD":  # parts would be written past the server, which drops the bodies of HEAD
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await send({"type": "http.response.body"})
            else:
                await super().__call__(scope, receive, send)
        finally:
            self._end()

    async def stream_response(self, send: Send) -> None:
        """Send the parts. The ping timer only looks at the clock, so that it adds nothing to the cost of a part."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        loop, write = asyncio.get_running_loop(), self._write
        last = loop.time()

        async def send_part(data: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": more})

        async def ping(data: bytes, seconds: float) -> None:
            nonlocal last
            await asyncio.sleep(seconds)
            while True:
                if loop.time() - last >= seconds:
                    last = loop.time()
                    await send_part(data)
                await asyncio.sleep(max(0.001, last + seconds - loop.time()))

        task = None
        if self._wire.ping is not None and self._ping_seconds is not None:
            task = asyncio.create_task(ping(self._wire.ping, self._ping_seconds))
        try:
            async for item in self._parts:
                part = item if isinstance(item, bytes) else self._wire.encode(item)
                last = loop.time()
                if write is None or not write(part):
                    await send_part(part)
        except ClientDisconnect:
            raise
        except Exception as error:  # errors after the start become the last part
            logs.failed(error)
            await send_part(self._error(problem_of(error)))
        finally:
            if task:
                task.cancel()
        await send_part(b"", more=False)

    def _error(self, problem: Problem) -> bytes:
        if self._wire.error:
            return self._wire.error(problem)
        return self._wire.encode(error_body(problem, self._scope))
