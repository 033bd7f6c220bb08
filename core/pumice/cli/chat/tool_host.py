"""MCP servers of a confined chat: a process forked before holds the connections, and asks the user before calls.

The chat is not trusted once it has read a model. It can neither start a program nor connect to a server, and names
nothing but a tool and its arguments; the other process shows them, and runs what the user allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NoReturn

import msgspec

from pumice.chat import Tool
from pumice.chat.tools import ToolError
from pumice.cli.chat.approvals import Approvals
from pumice.cli.chat.tool_wire import TO_CHAT, TO_HOST, CancelTool, Offer, OfferedTool, RunTool, ToolMessage, ToolResult
from pumice.errors import PumiceError
from pumice.mcp import Connections, McpServer
from pumice.spawning import wire
from pumice.spawning.fork import detach, fork_helper
from pumice.wording import printable

_GONE = "the process that holds the MCP connections has ended; restart the chat to use tools"
_MAX_PROBLEMS = 32  # lines of an offer
_MAX_REASON = 300  # characters of an error in a line
_UNREADABLE = (OSError, OverflowError, msgspec.MsgspecError)

_hosted: HostedTools | None = None


def hosted_tools() -> HostedTools | None:
    """Return the tools of the process that ``tools_in_other_process`` forked; None without MCP servers."""
    return _hosted


@contextlib.contextmanager
def tools_in_other_process(servers: Mapping[str, McpServer]) -> Iterator[None]:
    """Fork the process that connects to MCP servers. Call this before another thread starts."""
    global _hosted
    helper = fork_helper(partial(_serve, servers))
    _hosted = HostedTools(helper.channel)
    try:
        yield
    finally:
        _hosted.close()
        _hosted = None
        helper.end()


class HostedTools:
    """The chat's side: tools that run in the other process.

    Attributes:
        problems: One line for each server or tool that cannot be used.
    """

    def __init__(self, channel: socket.socket) -> None:
        self.problems: list[str] = []
        self._channel = channel
        self._numbers = itertools.count()
        # A thread receives, one answer for each call, so that Ctrl-C interrupts no exchange.
        self._exchanges = ThreadPoolExecutor(1, "pumice-mcp")

    def wait(self) -> list[Tool]:
        """Wait until the servers have started, and return their tools. Raises PumiceError if the process has ended."""
        offer = self._exchanges.submit(self._receive).result()
        if not isinstance(offer, Offer):
            raise PumiceError(_GONE)
        self.problems = offer.problems
        return [self._tool(tool) for tool in offer.tools]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)  # ends an exchange that waits
        self._exchanges.shutdown()
        self._channel.close()

    def _tool(self, tool: OfferedTool) -> Tool:
        def run(**arguments: object) -> str:
            return self._call(tool.name, arguments)

        return Tool(tool.name, tool.description, json.loads(tool.parameters), run)

    def _call(self, name: str, arguments: Mapping[str, object]) -> str:
        """Return the result of a call, which an exception such as KeyboardInterrupt cancels. Raises ToolError."""
        number = next(self._numbers)
        self._send(RunTool(number, name, json.dumps(arguments, ensure_ascii=False)))
        answer = self._exchanges.submit(self._receive)
        try:
            message = answer.result()
        except BaseException:
            with contextlib.suppress(ToolError):
                self._send(CancelTool(number))
            raise
        if not isinstance(message, ToolResult) or message.number != number:
            raise ToolError(_GONE)
        if message.is_error:
            raise ToolError(message.text)
        return message.text

    def _send(self, message: ToolMessage) -> None:
        try:
            wire.send(self._channel, message)
        except OSError:
            raise ToolError(_GONE) from None
        except OverflowError as error:
            raise ToolError(f"the call cannot be sent: {error}") from None

    def _receive(self) -> Offer | ToolResult | None:
        try:
            received = wire.receive(self._channel, TO_CHAT)
        except _UNREADABLE:
            return None
        return received[0] if received else None


def _serve(servers: Mapping[str, McpServer], channel: socket.socket) -> NoReturn:
    """Connect to the servers, and run calls until the other end closes ``channel``."""
    try:
        terminal = os.dup(0) if sys.stdin.isatty() else None
        detach(channel, terminal)
        logging.getLogger("mcp").setLevel(logging.CRITICAL)  # problems are lines of the offer, and results
        asyncio.run(_Host(servers, channel, Approvals(terminal)).serve())
    except _UNREADABLE:
        pass  # the other end is gone, or sent what a chat does not
    except Exception as error:
        line = f"the process that holds the MCP connections ends: {type(error).__name__}: {error}\n"
        with contextlib.suppress(OSError):
            os.write(2, line.encode(errors="backslashreplace"))
    finally:
        os._exit(0)


class _Host:
    """The other process's side."""

    def __init__(self, servers: Mapping[str, McpServer], channel: socket.socket, approvals: Approvals) -> None:
        self._connections = Connections(servers)
        self._channel = channel
        self._approvals = approvals
        self._calls: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        opening = asyncio.create_task(self._open())
        try:
            while (received := await asyncio.to_thread(wire.receive, self._channel, TO_HOST)) is not None:
                message, pipes = received
                wire.close(pipes)
                if isinstance(message, RunTool):
                    self._calls[message.number] = asyncio.create_task(self._run(message))
                elif message.number in self._calls:
                    self._calls[message.number].cancel()
        finally:
            opening.cancel()
            await self._connections.close()

    async def _open(self) -> None:
        """Start the servers, and offer their tools; in any case send an offer, for which the chat waits."""
        try:
            await self._connections.open()
            wire.send(self._channel, _offer(self._connections))
        except Exception as error:
            reason = printable(f"{type(error).__name__}: {error}")
            with contextlib.suppress(OSError):  # the chat is gone
                wire.send(self._channel, Offer([], [f"MCP: no tool can be used: {reason:.{_MAX_REASON}}"]))

    async def _run(self, call: RunTool) -> None:
        """Run a call that the user allows, and answer it in any case."""
        text, is_error = "the call was cancelled", True
        try:
            text, is_error = await self._result(call), False
        except ToolError as error:
            text = str(error)
        except Exception as error:  # of the package mcp: the chat goes on
            text = f"the call failed: {type(error).__name__}"
        finally:
            del self._calls[call.number]
            wire.send(self._channel, ToolResult(call.number, text, is_error))

    async def _result(self, call: RunTool) -> str:
        arguments = _read_arguments(call.arguments)
        tool = self._connections.tools.get(call.name)
        refusal = await self._approvals.refusal(tool, arguments) if tool else ""
        if refusal:
            raise ToolError(refusal)
        return await self._connections.call(call.name, arguments)


def _offer(connections: Connections) -> Offer:
    tools = [OfferedTool(tool.name, tool.description, tool.parameters) for tool in connections.tools.values()]
    problems = [*connections.failures, *connections.problems]
    n_more = len(problems) - _MAX_PROBLEMS
    if n_more > 0:
        problems[_MAX_PROBLEMS:] = [f"MCP: {n_more} more problems of servers and tools"]
    return Offer(tools, problems)


def _read_arguments(text: str) -> Mapping[str, object]:
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise ToolError("the arguments are not a JSON object")
    return arguments
