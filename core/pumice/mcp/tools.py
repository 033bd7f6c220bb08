"""Tools of MCP servers for ``chat`` and ``achat``; the connections live in a thread with an event loop."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from pumice.chat import Tool
from pumice.errors import UnavailableError
from pumice.mcp.connections import Connections, ServerTool
from pumice.mcp.servers import read_servers, read_servers_file, require_package

T = TypeVar("T")


@contextmanager
def mcp_tools(config: str | PathLike[str] | Mapping[str, Any]) -> Iterator[list[Tool]]:
    """Connect to MCP servers, and yield their tools for ``chat(tools=..., run_tools=...)``.

    The servers run, unconfined, until the end of the context. Tools whose schema cannot be used are left out, and the
    log says which. Cancelling ``achat``, or Ctrl-C during ``chat``, cancels a call.

    Args:
        config: Path of a JSON file ``{"mcpServers": {name: {"command", "args", "env"} or {"url", "headers"}}}``, as
            Claude Desktop, LM Studio and llama-server read it, or the object itself.

    Raises:
        ConfigError: The configuration is invalid, or the package ``mcp`` is missing.
        UnavailableError: A server cannot be started or reached, or does not speak the protocol.
    """
    import logging

    servers = read_servers(config) if isinstance(config, Mapping) else read_servers_file(Path(config))
    require_package()
    with _event_loop() as loop:
        connections = Connections(servers)
        try:
            loop.run(connections.open())
            if connections.failures:
                raise UnavailableError("; ".join(connections.failures.values()))
            for problem in connections.problems:
                logging.getLogger("pumice").warning("%s", problem)
            yield [_tool(tool, connections, loop) for tool in connections.tools.values()]
        finally:
            loop.run(connections.close())


def _tool(tool: ServerTool, connections: Connections, loop: _EventLoop) -> Tool:
    def run(**arguments: object) -> str:
        return loop.run(connections.call(tool.name, arguments))

    def arun(**arguments: object) -> Awaitable[str]:
        return asyncio.wrap_future(loop.start(connections.call(tool.name, arguments)))

    return Tool(tool.name, tool.description, json.loads(tool.parameters), run, arun=arun)


class _EventLoop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pumice-mcp", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine, which an exception such as KeyboardInterrupt in this thread cancels."""
        future = self.start(work)
        try:
            return future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def _event_loop() -> Iterator[_EventLoop]:
    loop = _EventLoop()
    try:
        yield loop
    finally:
        loop.close()
