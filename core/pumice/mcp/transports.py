"""Transports to MCP servers with bounded messages: a message without end costs its connection, not the memory.

The transports of the package ``mcp`` read lines and bodies of any length, and its sessions answer any number of
requests at once.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from pumice.mcp.servers import McpServer

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from httpx2 import AsyncByteStream, AsyncClient, Response
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCMessage

    Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

MAX_MESSAGE = 16 << 20  # bytes
_GRACE = 2.0  # seconds for a program to end, before each of two signals
_INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")  # environment variables


MAX_UNANSWERED = 64  # requests of a server whose answers it has not read
MAX_RATE = 1000  # requests and notifications a second; further ones wait

TOO_LARGE = f"it sent a message of more than {MAX_MESSAGE >> 20} MiB"
TOO_MANY = f"it sent more than {MAX_UNANSWERED} requests without reading the answers"


class _Traffic:
    """Counts a server's messages besides results: requests until they are answered, and messages a second."""

    def __init__(self) -> None:
        self._unanswered = 0
        self._second = 0
        self._n_messages = 0

    async def admit(self, message: JSONRPCMessage) -> bool:
        """Wait until a message may be passed on. Return False if the server has too many requests unanswered."""
        from mcp_types import JSONRPCNotification, JSONRPCRequest

        if not isinstance(message, JSONRPCRequest | JSONRPCNotification):
            return True
        self._unanswered += isinstance(message, JSONRPCRequest)
        if self._second != (second := int(time.monotonic())):
            self._second, self._n_messages = second, 0
        self._n_messages += 1
        if self._n_messages > MAX_RATE:
            await asyncio.sleep(1)
        return self._unanswered <= MAX_UNANSWERED

    def sent(self, message: JSONRPCMessage) -> None:
        """Count a message that the server has taken."""
        from mcp_types import JSONRPCError, JSONRPCResponse

        self._unanswered -= isinstance(message, JSONRPCResponse | JSONRPCError)


@asynccontextmanager
async def run_program(
    server: McpServer, ended: Callable[[str], None], misread: Callable[[bytes], None], errors: TextIO
) -> AsyncIterator[Streams]:
    """Start a program and yield streams of its messages; at the end the program and its children are ended.

    Args:
        server: Program, its arguments and environment.
        ended: Called with the reason if the program is killed.
        misread: Called with each line that is not a message.
        errors: File for what it writes to standard error.
    """
    import anyio

    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    program = await asyncio.create_subprocess_exec(
        shutil.which(server.command) or server.command,
        *server.args,
        stdin=PIPE,
        stdout=PIPE,
        stderr=errors,
        env={**environment, **server.env},
        cwd=server.cwd,
        start_new_session=True,
        limit=MAX_MESSAGE,
    )
    received, incoming = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    outgoing, to_send = anyio.create_memory_object_stream["SessionMessage"](0)
    traffic = _Traffic()
    tasks = [
        asyncio.create_task(_read(program, received, traffic, ended, misread)),
        asyncio.create_task(_write(program, to_send, traffic)),
    ]
    try:
        yield incoming, outgoing
    finally:
        for task in tasks:
            task.cancel()
        await _end(program)
        for stream in (received, incoming, outgoing, to_send):
            stream.close()


async def _read(
    program: Process,
    received: MemoryObjectSendStream[SessionMessage | Exception],
    traffic: _Traffic,
    ended: Callable[[str], None],
    misread: Callable[[bytes], None],
) -> None:
    """Pass on messages until the program ends, or is killed for one that is too large, or for too many requests."""
    from anyio import BrokenResourceError, ClosedResourceError
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    assert program.stdout
    with suppress(BrokenResourceError, ClosedResourceError):
        async with received:
            while True:
                try:
                    line = await program.stdout.readuntil()
                except asyncio.IncompleteReadError:
                    return
                except asyncio.LimitOverrunError:
                    _kill(program, TOO_LARGE, ended)
                    return
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError as error:
                    misread(line)
                    await received.send(error)
                    continue
                if not await traffic.admit(message):
                    _kill(program, TOO_MANY, ended)
                    return
                await received.send(SessionMessage(message))


def _kill(program: Process, reason: str, ended: Callable[[str], None]) -> None:
    ended(reason)
    with suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)


async def _write(program: Process, to_send: MemoryObjectReceiveStream[SessionMessage], traffic: _Traffic) -> None:
    assert program.stdin
    with suppress(ConnectionError, OSError):
        async for item in to_send:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            program.stdin.write(f"{text}\n".encode(errors="replace"))
            await program.stdin.drain()
            traffic.sent(item.message)


async def _end(program: Process) -> None:
    """Close a program's input and wait for its end; then end its group by signals, at once if this is cancelled."""
    assert program.stdin
    program.stdin.close()
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(TimeoutError):
                await asyncio.wait_for(program.wait(), _GRACE)
                break
            with suppress(ProcessLookupError):
                os.killpg(program.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(program.wait(), _GRACE)
    finally:
        with suppress(ProcessLookupError):  # children that outlive it
            os.killpg(program.pid, signal.SIGKILL)
        with suppress(AttributeError):  # a pipe that a child holds open is not waited for
            program._transport.close()  # type: ignore[attr-defined]


@asynccontextmanager
async def bounded_requests(
    transport: AbstractAsyncContextManager[TransportStreams], ended: Callable[[str], None]
) -> AsyncIterator[TransportStreams]:
    """Enter a transport and yield its streams, which end if the server sends too many requests.

    Args:
        transport: A transport of the package ``mcp``.
        ended: Called with the reason.
    """
    import anyio

    traffic = _Traffic()

    async def take() -> None:
        async with received:
            async for item in incoming:
                if not isinstance(item, Exception) and not await traffic.admit(item.message):
                    ended(TOO_MANY)
                    return
                await received.send(item)

    async def give() -> None:
        async for item in to_send:
            await outgoing.send(item)
            traffic.sent(item.message)

    received, passed_on = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    requests, to_send = anyio.create_memory_object_stream["SessionMessage"](0)
    async with transport as (incoming, outgoing):
        tasks = [asyncio.create_task(_until_closed(relay())) for relay in (take, give)]
        try:
            yield passed_on, requests
        finally:
            for task in tasks:
                task.cancel()
            for stream in (received, passed_on, requests, to_send):
                stream.close()


async def _until_closed(work: Coroutine[Any, Any, None]) -> None:
    """Do work with streams until one is closed."""
    from anyio import BrokenResourceError, ClosedResourceError

    with suppress(BrokenResourceError, ClosedResourceError):
        await work


def bounded_http(server: McpServer) -> AsyncClient:
    """Return a client for a server's address, which reads at most ``MAX_MESSAGE`` bytes of a body."""
    from httpx2 import AsyncClient, Timeout

    return AsyncClient(
        headers={"Accept-Encoding": "identity", **server.headers},
        timeout=Timeout(30, read=server.timeout),
        event_hooks={"response": [_bound]},
    )


async def _bound(response: Response) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise OSError("it sent a compressed body, although asked not to")
    if not response.headers.get("content-type", "").startswith("text/event-stream"):  # whose events are bounded
        response.stream = _bounded_stream(response.stream)  # type: ignore[arg-type]


def _bounded_stream(stream: AsyncByteStream) -> AsyncByteStream:
    from httpx2 import AsyncByteStream

    class Bounded(AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            n_bytes = 0
            async for part in stream:
                n_bytes += len(part)
                if n_bytes > MAX_MESSAGE:
                    raise OSError(TOO_LARGE)
                yield part

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()
