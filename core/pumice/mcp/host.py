"""The process that holds the MCP connections of a confined process, forked before that one is confined.

The confined process is not trusted. It can neither start a program nor connect to a server, and names nothing but a
tool and its arguments; the host runs what it is allowed to.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, NoReturn

import msgspec

from pumice.chat.tools import ToolError
from pumice.mcp.connections import Connections, ServerTool
from pumice.mcp.servers import McpServer
from pumice.mcp.wire import (
    TO_HOST,
    CancelTool,
    Offer,
    OfferedTool,
    RunTool,
    SkipServers,
    Starting,
    StartServers,
    ToolResult,
)
from pumice.spawning import wire
from pumice.spawning.fork import detach
from pumice.wording import printable

HOST_GONE = "the process that holds the MCP connections has ended"
UNREADABLE: Final = (OSError, OverflowError, msgspec.MsgspecError)
"""Errors of a channel whose other end is gone, or sends what it should not."""
_MAX_PROBLEMS = 32  # lines of an offer
_MAX_REASON = 300  # characters of an error in a line
_PATIENCE = 2.0  # seconds before the other process hears which servers have not started

Refusal = Callable[[ServerTool, Mapping[str, object]], Awaitable[str]]
"""Returns why a call must not run, for the model; an empty string if it may."""


def serve_tools(
    servers: Mapping[str, McpServer],
    channel: socket.socket,
    refusal: Refusal,
    terminal: int | None = None,
    waits: bool = True,
) -> NoReturn:
    """Connect to the servers, and run calls until the other end closes ``channel``; for a forked process.

    Args:
        servers: Servers by their names.
        channel: Connection to the process that uses the tools.
        refusal: Decides about each call.
        terminal: File of the terminal that the process keeps.
        waits: True to offer tools once, when all servers have started; False to offer them without servers that take
            longer, and again when one of these has started.
    """
    try:
        detach(channel, terminal)
        logging.getLogger("mcp").setLevel(logging.CRITICAL)  # problems are lines of the offer, and results
        asyncio.run(_Host(servers, channel, refusal, waits).serve())
    except UNREADABLE:
        pass
    except Exception as error:
        line = f"{HOST_GONE}: {type(error).__name__}: {error}\n"
        with contextlib.suppress(OSError):
            os.write(2, line.encode(errors="backslashreplace"))
    finally:
        os._exit(0)


class _Host:
    """Runs calls, each in a task of its own."""

    def __init__(self, servers: Mapping[str, McpServer], channel: socket.socket, refusal: Refusal, waits: bool) -> None:
        self._names = list(servers)
        self._connections = Connections(servers)
        self._channel = channel
        self._refusal = refusal
        self._waits = waits
        self._calls: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        starts = {asyncio.create_task(self._open())}
        try:
            while (received := await asyncio.to_thread(wire.receive, self._channel, TO_HOST)) is not None:
                message, pipes = received
                wire.close(pipes)
                if isinstance(message, RunTool):
                    self._calls[message.number] = asyncio.create_task(self._run(message))
                elif isinstance(message, CancelTool) and message.number in self._calls:
                    self._calls[message.number].cancel()
                elif isinstance(message, SkipServers):
                    self._connections.skip()
                elif isinstance(message, StartServers):
                    start = asyncio.create_task(self._reopen(message.servers))
                    starts.add(start)
                    start.add_done_callback(starts.discard)
        finally:
            for start in starts:
                start.cancel()
            await self._connections.close()

    async def _open(self) -> None:
        """Start the servers, and offer their tools; in any case send an offer, for which the other process waits."""
        is_first = True
        try:
            async for _ in self._connections.opened(_PATIENCE):
                starting = self._connections.starting
                if is_first and starting:
                    wire.send(self._channel, Starting(starting))
                is_first = False
                if not (starting and self._waits):
                    wire.send(self._channel, offer(self._connections))
        except Exception as error:
            reason = printable(f"{type(error).__name__}: {error}")
            problem = f"MCP: no tool can be used: {reason:.{_MAX_REASON}}"
            with contextlib.suppress(OSError):  # the other process is gone
                wire.send(self._channel, Offer([], [problem], self._names, []))

    async def _reopen(self, servers: Collection[str]) -> None:
        """Start servers again that have failed, and offer all tools each time that some have started."""
        with contextlib.suppress(OSError):  # the other process is gone
            async for _ in self._connections.reopened(servers, _PATIENCE):
                wire.send(self._channel, offer(self._connections))

    async def _run(self, call: RunTool) -> None:
        """Run a call that is allowed, and answer it in any case."""
        text, is_error = "the call was cancelled", True
        try:
            text, is_error = await self._result(call), False
        except ToolError as error:
            text = str(error)
        except Exception as error:  # of the package mcp: the other process goes on
            text = f"the call failed: {type(error).__name__}"
        finally:
            del self._calls[call.number]
            with contextlib.suppress(OSError):  # the other process is gone
                wire.send(self._channel, ToolResult(call.number, text, is_error))

    async def _result(self, call: RunTool) -> str:
        arguments = read_arguments(call.arguments)
        tool = self._connections.tools.get(call.name)
        reason = await self._refusal(tool, arguments) if tool else ""
        if reason:
            raise ToolError(reason)
        return await self._connections.call(call.name, arguments)


def offer(connections: Connections) -> Offer:
    """Return the tools and problems of connections as a message."""
    tools = [
        OfferedTool(tool.name, tool.description, tool.parameters, tool.server, tool.own_name)
        for tool in connections.tools.values()
    ]
    problems = [*connections.failures.values(), *connections.problems]
    n_more = len(problems) - _MAX_PROBLEMS
    if n_more > 0:
        problems[_MAX_PROBLEMS:] = [f"MCP: {n_more} more problems of servers and tools"]
    starting = connections.starting
    return Offer(tools, problems, [name for name in connections.failures if name not in starting], starting)


def read_arguments(text: str) -> Mapping[str, object]:
    """Return the arguments of a call. Raises ToolError if the text is no JSON object."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise ToolError("the arguments are not a JSON object")
    return arguments
