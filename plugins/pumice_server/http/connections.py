"""HTTP/1.1 as uvicorn speaks it with h11, which bounds headers; here they, and a client that reads, also have a time.

Parts of streams are written to the socket at once, past middlewares and h11, which cost more than the rest of a part.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from pumice_server import limits
from pumice_server.http.answers import WRITE

logger = logging.getLogger("pumice")

MALFORMED: Final = "Invalid HTTP request received."
"""uvicorn's warning and answer for a malformed request; the warning has no address."""

_ABSOLUTE = re.compile(rb"https?://([^/?]+)(.*)", re.IGNORECASE)  # target of a request for a proxy

Idle = dict["Protocol", None]
"""Connections without a request, the one that has been so for longest first."""


class RequestTurns:
    """Lets one request begin in each turn of the event loop, in order of arrival.

    Each request has several steps before its prompt is sent to an engine. If many arrive at once, the loop would take
    every step of all of them before the next step of any, and the engine would wait for the last.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_taken = False

    async def take(self) -> None:
        """Wait for the turn of a request."""
        loop = asyncio.get_running_loop()
        if self._is_taken:
            turn = loop.create_future()
            self._waiting.append(turn)
            await turn
        else:
            self._is_taken = True
            loop.call_soon(self._next)

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its request was cancelled
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._is_taken = False


class _Connection(h11.Connection):
    """A connection whose requests have headers of bounded size, and bodies of chunks that are not too small.

    Each chunk costs as much time as hundreds of bytes, in the event loop. h11 itself bounds headers that are not
    complete yet; those that arrive at once may be several times as long.
    """

    problem = ""
    """The error message of a request beyond the bounds."""

    _n_chunks = _n_bytes = 0  # of the present body

    def next_event(self) -> Any:
        """Return the next part of a request. Raises RemoteProtocolError beyond the bounds."""
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._n_chunks += event.chunk_start
            self._n_bytes += len(event.data)
            if self._n_chunks > limits.MAX_CHUNKS + self._n_bytes // limits.CHUNK_BYTES:
                size = self._n_bytes // self._n_chunks
                self._refuse(f"the body has {self._n_chunks} chunks of {size} bytes; send larger ones")
        elif isinstance(event, h11.Request):
            self._n_chunks = self._n_bytes = 0
            size = len(event.method) + len(event.target) + sum(len(name) + len(value) for name, value in event.headers)
            if size > limits.MAX_HEADERS:
                self._refuse(f"the headers have {size} bytes, more than {limits.MAX_HEADERS}")
            return _in_origin_form(event)
        return event

    def _refuse(self, problem: str) -> None:
        self.problem = problem
        raise h11.RemoteProtocolError(problem)


def _in_origin_form(request: h11.Request) -> h11.Request:
    """Return a request whose target is a path: that of an absolute URL, whose host replaces the header (RFC 9112)."""
    absolute = _ABSOLUTE.fullmatch(request.target)
    if absolute is None:
        return request
    host, path = absolute.groups()
    headers = [(b"host", host), *((name, value) for name, value in request.headers if name != b"host")]
    target = path if path.startswith(b"/") else b"/" + path
    return h11.Request(method=request.method, headers=headers, target=target, http_version=request.http_version)


class Protocol(H11Protocol):
    """Closes connections that hold others up: requests that do not come to their point, clients that do not read.

    Where all connections are in use, a new one takes the place of the one that has had no request for longest.

    A connection that ends before its client has sent a whole request lingers: what still comes is thrown away for a
    while. If the socket were closed with bytes unread, the system would reset the connection, and with it the answer.
    """

    def __init__(self, *arguments: Any, idle: Idle, turns: RequestTurns, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn: _Connection = _Connection(h11.SERVER, limits.MAX_HEADERS)
        self._idle = idle
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._seen: object = None  # the last request whose headers are there
        self._lingers = False
        self._stops = False  # with the server
        self._n_drained = 0  # bytes of the present request that came after its answer
        self.app = partial(_in_turn, turns, self.app, self.write_part)

    def send_400_response(self, msg: str) -> None:
        """Refuse malformed HTTP with one line; close the connection if an answer to the request has begun."""
        host, port = self.client or ("an unknown address", 0)
        logger.warning("malformed request from %s, port %d: %s", host, port, self.conn.problem or "not valid HTTP")
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        super().send_400_response(self.conn.problem or msg)
        if self.cycle and not self.cycle.response_complete:  # a request whose body is malformed has its answer
            self.cycle.disconnected = True
            self.cycle.message_event.set()

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
        self._socket = transport
        super().connection_made(_Lingering(transport, self))  # type: ignore[arg-type]  # all but close() is the transport's
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency and self._idle:
            next(iter(self._idle)).drop()
        self._idle[self] = None
        self._expect()

    def data_received(self, data: bytes) -> None:
        if self._lingers or self._is_answered_early:
            self._n_drained += len(data)
            if self._n_drained > limits.MAX_DRAINED:
                self._socket.abort()
                return
        else:
            self._n_drained = 0
        if self._lingers:
            return
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

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing of a client that asks for a WebSocket: it gets the answer to a plain request."""

    def drop(self) -> None:
        """End the connection, with what its client has not read."""
        self._idle.pop(self, None)
        self.connections.discard(self)
        self.transport.abort()

    @property
    def lingers(self) -> bool:
        """True if the connection has ended but for what its client still sends."""
        return self._lingers

    def end(self) -> None:
        """Close the connection once its client has sent a whole request, or left, or the time for that is over."""
        if self._lingers or self._socket.is_closing():
            return
        if self._stops or not self._has_more:
            self._socket.close()
            return
        try:
            if self._socket.can_write_eof():
                self._socket.write_eof()
        except OSError:  # the client has reset the connection
            self._socket.close()
            return
        self._lingers = True
        self._forget()
        self._timer = self.loop.call_later(limits.DRAIN_SECONDS, self._socket.close)
        self.flow.resume_reading()

    @property
    def _has_more(self) -> bool:
        """True if more of a request may come."""
        if self.conn.their_state is h11.SEND_BODY:
            return True
        # TLS cannot end one direction alone, which some answers to what is no HTTP need for their own end.
        is_plain = self._socket.can_write_eof()
        return is_plain and (self.conn.their_state is h11.ERROR or bool(self.conn.trailing_data[0]))

    def shutdown(self) -> None:
        self._stops = True
        if self._lingers:
            self._socket.close()
        else:
            super().shutdown()

    @property
    def _is_answered_early(self) -> bool:
        """True while a body comes whose request has been answered."""
        return self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY

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
        """Drop the connection unless the client takes some of ``unread`` bytes in time."""
        self._stall = self.loop.call_later(limits.STALL_SECONDS, self._look, unread)

    def _look(self, unread: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < unread:
            self._watch(left)
        else:
            logger.warning(
                "a client did not read its response for %.0f seconds; the connection is closed", limits.STALL_SECONDS
            )
            self.drop()

    def _expect(self) -> None:
        seconds = limits.DRAIN_SECONDS if self._is_answered_early else limits.HEADER_SECONDS
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _forget(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        self._socket.close()


class _Lingering:
    """The transport of a connection, which its protocol closes."""

    def __init__(self, transport: asyncio.Transport, protocol: Protocol) -> None:
        self._transport = transport
        self._protocol = protocol
        self.write = transport.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._protocol.lingers or self._transport.is_closing()

    def close(self) -> None:
        self._protocol.end()


async def _in_turn(
    turns: RequestTurns, app: ASGIApp, write: Callable[[bytes], bool], scope: Scope, receive: Receive, send: Send
) -> None:
    """Call an application when it is the request's turn, with the function that writes parts of its answer."""
    await turns.take()
    await app({**scope, "extensions": {**scope.get("extensions", {}), WRITE: write}}, receive, send)
