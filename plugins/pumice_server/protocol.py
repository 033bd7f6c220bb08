"""HTTP/1.1 as uvicorn speaks it with h11, which bounds headers; here they also have a time to arrive.

Parts of streams are written to the socket at once, past middlewares and h11, which cost more than the rest of a part.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from pumice_server.answers import WRITE

HEADER_SECONDS = 15.0  # for the headers of a request to arrive, once it or its connection began


class Protocol(H11Protocol):
    """Closes a connection whose request does not come to its point, so that slow clients do not use them all up."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timer: asyncio.TimerHandle | None = None
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
        self._expect()

    def data_received(self, data: bytes) -> None:
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect()
        super().data_received(data)
        if self.cycle is not self._seen:
            self._seen = self.cycle
            self._forget()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._timer = self.loop.call_later(HEADER_SECONDS, self._too_slow)

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
