"""Answers over HTTP: JSON at once, or server-sent events as they come. A client that leaves ends its generation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pumice_server.body import Body
from pumice_server.errors import Problem
from pumice_server.work import aside

T = TypeVar("T")
Write = Callable[[bytes], bool]
"""Writes a part of an answer at once. False: the client has not taken those before, and it is to be sent as others."""

WRITE = "pumice.write"  # extension of ASGI under which a protocol offers that
JSON = "application/json"
DONE = b"data: [DONE]\n\n"
_MARK = "\ue000"  # private use: no name of a model has it
_PART = 128 << 10  # bytes of an answer that are sent at once
_PING = b":\n\n"  # a comment, which keeps connections open
PING_SECONDS = 30.0  # between two comments while nothing else is sent

logger = logging.getLogger("pumice")


class Whole(Response):
    """An answer that is there as a whole, and sent in parts: what its client has not read yet takes little memory."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for begin in range(0, max(1, len(self.body)), _PART):
            end = begin + _PART
            part = {"type": "http.response.body", "body": self.body[begin:end], "more_body": end < len(self.body)}
            await send(part)
            await asyncio.sleep(0)  # others have their turn, however quickly it is read


def titled(response: Response) -> Response:
    """The response with names of headers as llama-server writes them, for clients that compare them by case."""
    response.raw_headers = [(name.title(), value) for name, value in response.raw_headers]
    return response


def json_response(value: Any) -> Response:
    return Whole(to_json(value), media_type=JSON)


async def make_answer(make: Callable[[], Any], size: int) -> Response:
    """An answer of about ``size`` bytes as JSON, made beside the event loop if that is much."""
    return await aside(lambda: json_response(make()), size=size)


def to_json(value: Any) -> bytes:
    """Infinities become null; keys may be token ids, lists of numbers arrays."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)


def event(value: Any, name: str = "") -> bytes:
    """A server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + to_json(value) + b"\n\n"


class Frame:
    """Events that differ in one text alone: the rest is made once."""

    def __init__(self, make: Callable[[str], bytes]) -> None:
        self._before, self._after = make(_MARK).split(to_json(_MARK))

    def __call__(self, text: str) -> bytes:
        return self._before + to_json(text) + self._after


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled if the client leaves. Raises ClientDisconnect then."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@dataclass(frozen=True)
class Wire:
    """How a protocol streams: its media type, an error after the beginning, and what is sent while nothing comes."""

    media_type: str
    error: Callable[[Problem], bytes]
    ping: bytes | None


SSE = Wire("text/event-stream", lambda problem: event(problem.body()), _PING)


def ping_seconds(body: Body) -> float | None:
    """Seconds between two pings, as the field ``sse_ping_interval`` says; None: none."""
    seconds = body.integer("sse_ping_interval", int(PING_SECONDS))
    return seconds if seconds > 0 else None


class Streaming(StreamingResponse):
    """Sends ``parts`` as they come, and pings while none do; calls ``end`` however it ends."""

    def __init__(
        self,
        parts: AsyncIterator[bytes],
        end: Callable[[], None],
        wire: Wire = SSE,
        ping: float | None = PING_SECONDS,
    ) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(parts, headers=headers, media_type=wire.media_type)
        self._parts = parts
        self._end = end
        self._wire = wire
        self._ping_seconds = ping
        self._write: Write | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._write = scope.get("extensions", {}).get(WRITE)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()

    async def stream_response(self, send: Send) -> None:
        """As it is sent: the timer only looks at the clock, so that a part costs nothing more."""
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
            async for part in self._parts:
                last = loop.time()
                if write is None or not write(part):
                    await send_part(part)
        except ClientDisconnect:
            raise
        except Exception as error:  # what goes wrong after the answer began is its last part
            logger.error("a stream ended early: %s: %s", type(error).__name__, error)
            await send_part(self._wire.error(Problem.of(error)))
        finally:
            if task:
                task.cancel()
        await send_part(b"", more=False)
