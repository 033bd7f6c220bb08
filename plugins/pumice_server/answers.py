"""Answers over HTTP: JSON at once, or server-sent events as they come. A client that leaves ends its generation."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pumice_server.errors import Problem

T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
_PING = b":\n\n"  # a comment, which keeps connections open
PING_SECONDS = 30.0  # between two comments while nothing else is sent

logger = logging.getLogger("pumice")


def json_response(value: Any) -> Response:
    return Response(to_json(value), media_type="application/json")


def to_json(value: Any) -> bytes:
    """Infinities become null; keys may be token ids."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


def event(value: Any, name: str = "") -> bytes:
    """A server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + to_json(value) + b"\n\n"


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


class Streaming(StreamingResponse):
    """Sends ``parts`` as they come; calls ``end`` however it ends."""

    def __init__(self, parts: AsyncIterator[bytes], end: Callable[[], None], wire: Wire = SSE) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(_with_pings(_with_errors(parts, wire), wire), headers=headers, media_type=wire.media_type)
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


async def _with_errors(parts: AsyncIterator[bytes], wire: Wire) -> AsyncIterator[bytes]:
    """What goes wrong after the answer began is its last part."""
    try:
        async for each in parts:
            yield each
    except Exception as error:
        logger.error("a stream ended early: %s: %s", type(error).__name__, error)
        yield wire.error(Problem.of(error))


async def _with_pings(parts: AsyncIterator[bytes], wire: Wire) -> AsyncIterator[bytes]:
    coming: asyncio.Future[bytes] = asyncio.ensure_future(anext(parts))
    try:
        while True:
            done, _ = await asyncio.wait({coming}, timeout=PING_SECONDS)
            if not done:
                if wire.ping is not None:
                    yield wire.ping
                continue
            try:
                found = coming.result()
            except StopAsyncIteration:
                return
            coming = asyncio.ensure_future(anext(parts))
            yield found
    finally:
        coming.cancel()
        with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
            await coming
