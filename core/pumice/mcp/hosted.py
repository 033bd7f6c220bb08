"""MCP servers of a confined server: a process forked before holds the connections, for all requests at once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NoReturn

import msgspec

from pumice.chat.tools import ToolError
from pumice.mcp.connections import PAUSE, ServerTool
from pumice.mcp.host import HOST_GONE, UNREADABLE, serve_tools
from pumice.mcp.servers import McpServer
from pumice.mcp.wire import FROM_HOST, CancelTool, Offer, RunTool, Starting, StartServers, ToolMessage, ToolResult
from pumice.spawning import wire
from pumice.spawning.fork import fork_helper
from pumice.wording import printable

logger = logging.getLogger("pumice")

_GONE = f"{HOST_GONE}; the server has to be restarted to run tools"


@contextlib.contextmanager
def hosted_tools(servers: Mapping[str, McpServer]) -> Iterator[HostedTools]:
    """Fork the process that connects to MCP servers, which runs every tool that they have.

    Call this before another thread starts, and before the process is confined.

    Args:
        servers: Servers by their names; ``enabled_tools`` of each bounds what can be called.
    """
    helper = fork_helper(partial(_serve, servers))
    tools = HostedTools(list(servers), helper.channel)
    try:
        yield tools
    finally:
        tools.close()
        helper.end()


def _serve(servers: Mapping[str, McpServer], channel: socket.socket) -> NoReturn:
    serve_tools(servers, channel, _allow, waits=False)


async def _allow(tool: ServerTool, arguments: Mapping[str, object]) -> str:
    """Refuse nothing: the host knows only tools that are enabled."""
    return ""


class HostedTools:
    """Tools that another process runs, for coroutines of one event loop.

    Attributes:
        servers: Names of the servers.
    """

    def __init__(self, servers: list[str], channel: socket.socket) -> None:
        self.servers = servers
        self._channel = channel
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[ToolResult]] = {}
        self._latest: Offer | None = None
        self._next: asyncio.Future[Offer] | None = None  # offer that follows the latest
        self._logged: set[str] = set()
        self._late: set[str] = set()  # servers that have not started after a while
        self._next_tries: dict[str, float] = {}  # times at which servers that failed may be started again
        self._gone = False
        # One thread sends, so that messages do not mix and a host that does not read delays no event loop.
        self._sending = ThreadPoolExecutor(1, "pumice-mcp-send")

    def start(self) -> None:
        """Begin to receive, in the running event loop."""
        loop = asyncio.get_running_loop()
        self._next = loop.create_future()
        threading.Thread(target=self._receive, args=(loop,), name="pumice-mcp", daemon=True).start()

    async def offer(self, servers: Collection[str] = ()) -> Offer:
        """Return the tools of the servers that have started, and wait for those of ``servers`` that are starting.

        Of ``servers``, or of all without them, those that failed are started again, ``PAUSE`` seconds after that.

        Raises:
            ToolError: The other process has ended.
        """
        assert self._next is not None, "start() comes first"
        self._start_again(servers or self.servers)
        while (latest := self._latest) is None or not set(servers).isdisjoint(latest.starting):
            await asyncio.shield(self._next)  # whose offer another one may have followed already
        return latest

    def _start_again(self, servers: Collection[str]) -> None:
        """Ask for another start of servers that have failed, and count them among those that are starting."""
        latest, now = self._latest, time.monotonic()
        if latest is None or self._gone:
            return
        names = [name for name in latest.failed if name in servers and now >= self._next_tries[name]]
        if names:
            self._late.update(names)
            failed = [name for name in latest.failed if name not in names]
            self._latest = msgspec.structs.replace(latest, failed=failed, starting=[*latest.starting, *names])
            self._send(lambda: StartServers(names))

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        """Call a tool and return its result, cut to what a model reads.

        Raises:
            ToolError: The tool reports an error, or its server fails or takes too long.
            asyncio.CancelledError: The task was cancelled; the server is told.
        """
        if self._gone:
            raise ToolError(_GONE)
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self._send(lambda: RunTool(number, name, json.dumps(arguments, ensure_ascii=False)), number)
        try:
            result = await self._waiting[number]
        except asyncio.CancelledError:
            self._send(lambda: CancelTool(number))
            raise
        finally:
            del self._waiting[number]
        if result.is_error:
            raise ToolError(result.text)
        return result.text

    def close(self) -> None:
        """End the other process's work."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        self._sending.shutdown(cancel_futures=True)

    def _send(self, make: Callable[[], ToolMessage], number: int | None = None) -> None:
        """Send the message that ``make`` returns, which may take long; without success the call ``number`` fails."""
        with contextlib.suppress(RuntimeError):  # the server ends
            self._sending.submit(self._send_now, make, number)

    def _send_now(self, make: Callable[[], ToolMessage], number: int | None) -> None:
        try:
            wire.send(self._channel, make())
        except (OverflowError, RecursionError) as error:
            self._fail(number, f"the call cannot be sent: {error}")
        except (OSError, ValueError):
            self._fail(number, _GONE)

    def _fail(self, number: int | None, reason: str) -> None:
        if number is not None and (future := self._waiting.get(number)):
            future.get_loop().call_soon_threadsafe(self._take, ToolResult(number, reason, True))

    def _receive(self, loop: asyncio.AbstractEventLoop) -> None:
        received = None
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            while True:
                with contextlib.suppress(*UNREADABLE):
                    received = wire.receive(self._channel, FROM_HOST)
                if received is None:
                    break
                loop.call_soon_threadsafe(self._take, received[0])
                received = None
            loop.call_soon_threadsafe(self._end)

    def _take(self, message: Starting | Offer | ToolResult) -> None:
        if isinstance(message, Starting):
            self._late = {*message.servers}
            logger.warning("%s", _starting(message.servers))
        elif isinstance(message, Offer):
            self._take_offer(message)
        elif (future := self._waiting.get(message.number)) and not future.done():
            future.set_result(message)

    def _take_offer(self, offer: Offer) -> None:
        for problem in offer.problems:
            if problem not in self._logged:  # offers repeat them
                logger.warning("%s", problem)
        self._logged.update(offer.problems)
        failed_before = self._latest.failed if self._latest else ()
        self._next_tries |= {name: time.monotonic() + PAUSE for name in offer.failed if name not in failed_before}
        for name in self._late - {*offer.starting, *offer.failed}:
            logger.info("MCP server %s has started", name)
        self._late &= {*offer.starting}
        self._latest, waited = offer, self._next
        if waited and not waited.done():
            self._next = waited.get_loop().create_future()
            waited.set_result(offer)

    def _end(self) -> None:
        """Fail all calls, and all later ones."""
        self._gone = True
        logger.error("%s", _GONE)
        if self._next and not self._next.done():
            self._next.set_exception(ToolError(_GONE))
            self._next.exception()  # nobody may wait for it
        for number, future in self._waiting.items():
            if not future.done():
                future.set_result(ToolResult(number, _GONE, True))


def _starting(servers: Sequence[str]) -> str:
    """Return the warning about servers that have not started after a while."""
    names = printable(", ".join(servers))
    is_one = len(servers) == 1
    return (
        f"MCP server{'' if is_one else 's'} {names}: no answer to `initialize` yet; requests that do not name "
        f"{'it' if is_one else 'them'} go on, and the tools appear with the answer; if none comes, check the command "
        "or url in the configuration"
    )
