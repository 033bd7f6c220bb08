"""MCP servers of a confined chat: a process forked before holds the connections, and asks the user before calls.

The chat is not trusted once it has read a model. It can neither start a program nor connect to a server, and names
nothing but a tool and its arguments; the other process shows them, and runs what the user allows.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NoReturn

from pumice.chat import Tool
from pumice.chat.tools import ToolError
from pumice.cli.chat.approvals import Approvals
from pumice.errors import PumiceError
from pumice.mcp import McpServer
from pumice.mcp.host import HOST_GONE, UNREADABLE, serve_tools
from pumice.mcp.wire import (
    FROM_HOST,
    CancelTool,
    Offer,
    OfferedTool,
    RunTool,
    SkipServers,
    Starting,
    ToolMessage,
    ToolResult,
)
from pumice.spawning import wire
from pumice.spawning.fork import fork_helper

_GONE = f"{HOST_GONE}; restart the chat to use tools"

_hosted: ChatTools | None = None


def hosted_tools() -> ChatTools | None:
    """Return the tools of the process that ``tools_in_other_process`` forked; None without MCP servers."""
    return _hosted


@contextlib.contextmanager
def tools_in_other_process(servers: Mapping[str, McpServer]) -> Iterator[None]:
    """Fork the process that connects to MCP servers. Call this before another thread starts."""
    global _hosted
    helper = fork_helper(partial(_serve, servers))
    _hosted = ChatTools(helper.channel)
    try:
        yield
    finally:
        _hosted.close()
        _hosted = None
        helper.end()


class ChatTools:
    """The chat's side: tools that run in the other process.

    Attributes:
        problems: One line for each server or tool that cannot be used.
    """

    def __init__(self, channel: socket.socket) -> None:
        self.problems: list[str] = []
        self._channel = channel
        self._numbers = itertools.count()
        # Threads send, and receive one answer for each call, so that Ctrl-C interrupts no exchange.
        self._requests = ThreadPoolExecutor(1, "pumice-mcp-send")
        self._answers = ThreadPoolExecutor(1, "pumice-mcp")
        self._is_closed = False

    def wait(self, tell: Callable[[Sequence[str]], None]) -> list[Tool]:
        """Wait until the servers have started, and return their tools.

        Args:
            tell: Called with the names of servers that do not start soon. From then on KeyboardInterrupt, also one that
                ``tell`` raises, goes on without them.

        Raises:
            PumiceError: The process has ended.
        """
        message = self._answers.submit(self._receive).result()
        if isinstance(message, Starting):
            coming = self._answers.submit(self._receive)
            try:
                tell(message.servers)
                message = coming.result()
            except KeyboardInterrupt:
                self._requests.submit(self._send, SkipServers())
                message = coming.result()
        if not isinstance(message, Offer):
            raise PumiceError(_GONE)
        self.problems = message.problems
        return [self._tool(tool) for tool in message.tools]

    def close(self) -> None:
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)  # ends an exchange that waits
        self._requests.shutdown()
        self._answers.shutdown()
        self._channel.close()

    def _tool(self, tool: OfferedTool) -> Tool:
        def run(**arguments: object) -> str:
            return self._call(tool.name, arguments)

        return Tool(tool.name, tool.description, json.loads(tool.parameters), run)

    def _call(self, name: str, arguments: Mapping[str, object]) -> str:
        """Return the result of a call, which an exception such as KeyboardInterrupt cancels. Raises ToolError."""
        if self._is_closed:
            raise ToolError(_GONE)
        number = next(self._numbers)
        call = RunTool(number, name, json.dumps(arguments, ensure_ascii=False))
        try:
            message = self._requests.submit(self._begin, call).result().result()
        except BaseException:
            self._requests.submit(self._send, CancelTool(number))
            raise
        if not isinstance(message, ToolResult) or message.number != number:
            raise ToolError(_GONE)
        if message.is_error:
            raise ToolError(message.text)
        return message.text

    def _begin(self, call: RunTool) -> Future[Starting | Offer | ToolResult | None]:
        """Send a call, and return its answer. Raises ToolError."""
        self._send(call)
        return self._answers.submit(self._receive)

    def _send(self, message: ToolMessage) -> None:
        try:
            wire.send(self._channel, message)
        except OSError:
            raise ToolError(_GONE) from None
        except OverflowError as error:
            raise ToolError(f"the call cannot be sent: {error}") from None

    def _receive(self) -> Starting | Offer | ToolResult | None:
        try:
            received = wire.receive(self._channel, FROM_HOST)
        except UNREADABLE:
            return None
        return received[0] if received else None


def _serve(servers: Mapping[str, McpServer], channel: socket.socket) -> NoReturn:
    """Run calls that the user allows, until the other end closes ``channel``."""
    terminal = os.dup(0) if sys.stdin.isatty() else None
    serve_tools(servers, channel, Approvals(terminal).refusal, terminal)
