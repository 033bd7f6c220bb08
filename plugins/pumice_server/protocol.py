"""HTTP/1.1 as uvicorn speaks it with h11, which bounds headers; here they, and a client that reads, also have a time.

Parts of streams are written to the socket at once, past middlewares and h11, which cost more than the rest of a part.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from pumice_server import limits
from pumice_server.answers import WRITE

logger = logging.getLogger("pumice")

Idle = dict["Protocol", None]
"""Connections without a request, the one that has been so for longest first."""


class Protocol(H11Protocol):
    """Closes connections that hold others up: requests that do not come to their point, clients that do not read.

    Where all connections are in use, a new one takes the place of the one that has had no request for longest.
    """

    def __init__(self, *arguments: Any, idle: Idle, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._idle = idle
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._seen: object = None  # the last request whose headers are there
        self.app = partial(_with_writer, self.app, self.write_part)

    def write_part(self, data: bytes) -> bool:
        """Write a part of an answer that is sent in chunks; those of HTTP/1.0 are not. False: it has to wait."""
        cycle = self.cycle
        if self.flow.write_paused or cycle.disconnected or cycle.scope["http_version"] != "1.1" or not data:
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # asyncio does so only where the listening socket names its protocol; without it a part waits for the last's ACK
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency and self._idle:
            next(iter(self._idle)).drop()
        self._idle[self] = None
        self._expect()

    def data_received(self, data: bytes) -> None:
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect()
        super().data_received(data)
        self._look_at_request()

    def on_response_complete(self) -> None:
        self._idle[self] = None
        super().on_response_complete()  # which may begin the next request
        self._look_at_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._idle.pop(self, None)
        if self._stall:
            self._stall.cancel()
        super().connection_lost(exc)

    def drop(self) -> None:
        """End the connection, with what its client has not read."""
        self._idle.pop(self, None)
        self.connections.discard(self)
        self.transport.abort()

    def _look_at_request(self) -> None:
        """A request whose headers are there keeps its connection."""
        if self.cycle is not self._seen:
            self._seen = self.cycle
            self._forget()
        if self.cycle is not None and not self.cycle.response_complete:
            self._idle.pop(self, None)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if self._stall:
            self._stall.cancel()
        self._stall = None
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():  # closing it would wait for the client
            self.drop()
        else:
            super().timeout_keep_alive_handler()

    def _watch(self, unread: int) -> None:
        """Drop the connection unless the client takes some of so many bytes in time."""
        self._stall = self.loop.call_later(limits.STALL_SECONDS, self._look, unread)

    def _look(self, unread: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < unread:
            self._watch(left)
        else:
            logger.warning("a client did not take a part of its answer for %.0f seconds", limits.STALL_SECONDS)
            self.drop()

    def _expect(self) -> None:
        self._timer = self.loop.call_later(limits.HEADER_SECONDS, self._too_slow)

    def _forget(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        self.transport.close()


async def _with_writer(
    app: ASGIApp, write: Callable[[bytes], bool], scope: Scope, receive: Receive, send: Send
) -> None:
    await app({**scope, "extensions": {**scope.get("extensions", {}), WRITE: write}}, receive, send)
