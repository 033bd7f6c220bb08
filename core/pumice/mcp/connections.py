"""Connections to MCP servers in one event loop. A server's fault ends its own connection, with one line."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO, TypeAlias, TypeVar

from pumice.chat.tools import MAX_RESULT, ToolError, result_text
from pumice.errors import RequestError
from pumice.grammar import check_schema
from pumice.mcp.servers import McpServer
from pumice.mcp.transports import bounded_http, bounded_requests, run_program
from pumice.wording import printable

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult
    from mcp_types import Tool as ListedTool

T = TypeVar("T")

MAX_TOOLS = 128  # that the model sees, of all servers
MAX_DESCRIPTION = 4096  # characters of a tool's description
_MAX_SCHEMA = 1 << 16  # characters of a tool's schema, as JSON
_MAX_PAGES = 64  # of a list of tools
_MAX_LISTED = 1000  # tools of a server
_MAX_LISTED_CHARACTERS = 16 << 20  # of their descriptions and schemas
_MAX_LISTED_NAME = 256  # characters of a tool's own name
_MAX_REASON = 300  # characters of an error in a line
PAUSE = 10.0  # seconds from a start that fails, or the restart of a server that ended, to the next one
_ENDING = 5.0  # seconds to wait for a server to end in order; the package mcp then kills it
_NAME = re.compile(r"[^A-Za-z0-9_-]+")  # what names of functions may not have
_MAX_NAME = 64


@dataclass(frozen=True)
class ServerTool:
    """A tool of a server, as the model sees it.

    Attributes:
        name: Name by which the model calls the tool, unique among all servers.
        server: Name of the server.
        own_name: Name of the tool at the server.
        description: Purpose of the tool.
        parameters: JSON schema of the arguments, as JSON text.
        allowed: True if the configuration lets it run without a question.
    """

    name: str
    server: str
    own_name: str
    description: str
    parameters: str
    allowed: bool


class _Listed(NamedTuple):
    """The tools of a server that has started, or the problem of one that has not."""

    tools: Sequence[ListedTool]
    problem: str


_Opening: TypeAlias = "dict[asyncio.Task[_Listed | None], _Connection]"


class Connections:
    """Connections to servers, and their tools. All methods are for the event loop in which ``open`` was called.

    Attributes:
        tools: Tools by the names that the model sees; complete after ``open``.
        failures: A line for each server that cannot be used, by its name.
        problems: One line for each tool that is left out or renamed.
    """

    def __init__(self, servers: Mapping[str, McpServer]) -> None:
        self.tools: dict[str, ServerTool] = {}
        self.failures: dict[str, str] = {}
        self.problems: list[str] = []
        logging.getLogger("mcp").addHandler(logging.NullHandler())  # its tracebacks are for handlers that users set up
        self._connections = [_Connection(name, server) for name, server in servers.items()]

    async def open(self) -> None:
        """Start all servers, and list their tools; ``failures`` says which cannot be used."""
        async for _ in self.opened(None):
            pass

    async def opened(self, patience: float | None) -> AsyncIterator[None]:
        """Start all servers, and yield each time ``tools`` is complete for those that have started.

        The first time comes once all servers have started or failed, but after at most ``patience`` seconds (None:
        unlimited); from then on, each server that is late brings another. Tools keep their names.
        """
        opening: _Opening = {asyncio.create_task(item.open()): item for item in self._connections}
        async for _ in self._started(opening, patience):
            yield

    async def reopened(self, names: Collection[str], patience: float) -> AsyncIterator[None]:
        """Start those of the servers ``names`` again that failed, and yield as ``opened``, at least once.

        Servers that failed less than ``PAUSE`` seconds ago stay failed.
        """
        failed = [item for item in self._connections if item.name in self.failures and item.name in names]
        opening: _Opening = {asyncio.create_task(connection.reopen()): connection for connection in failed}
        async for _ in self._started(opening, patience):
            yield

    async def _started(self, opening: _Opening, patience: float | None) -> AsyncIterator[None]:
        """Take the tools of servers from the tasks that start them, and yield as ``opened``."""
        if not opening:
            yield
        waiting = set(opening)
        until: Literal["ALL_COMPLETED", "FIRST_COMPLETED"] = asyncio.ALL_COMPLETED
        while waiting:
            done, waiting = await asyncio.wait(waiting, timeout=patience, return_when=until)
            patience, until = None, asyncio.FIRST_COMPLETED
            for task, connection in opening.items():
                if task in done and (listed := task.result()) is not None:
                    self._take(connection, listed)
            self._limit()
            yield

    def _take(self, connection: _Connection, listed: _Listed) -> None:
        """Add the tools of a server that has started, or the line that says why it cannot be used."""
        if listed.problem:
            self.failures[connection.name] = f"MCP server {connection.name}: {listed.problem}"
        else:
            self.failures.pop(connection.name, None)
            self._check_enabled(connection, {tool.name for tool in listed.tools})
        for tool in listed.tools[:_MAX_LISTED]:
            self._add(connection, tool)
        if len(listed.tools) > _MAX_LISTED:
            self.problems.append(f"MCP server {connection.name}: only its first {_MAX_LISTED} tools are read")

    def _limit(self) -> None:
        """Leave out the tools beyond ``MAX_TOOLS``."""
        left_out = len(self.tools) - MAX_TOOLS
        if left_out > 0:
            self.tools = dict(list(self.tools.items())[:MAX_TOOLS])
            self.problems.append(
                f"MCP: {left_out} tools are left out, since a chat takes at most {MAX_TOOLS}; "
                "list those that it does not need as disabledTools"
            )

    @property
    def starting(self) -> list[str]:
        """Names of the servers that are still starting."""
        return [connection.name for connection in self._connections if connection.is_starting]

    def skip(self) -> None:
        """Go on without the servers that are still starting: ``open`` returns, and they count as failures."""
        for connection in self._connections:
            if connection.is_starting:
                connection.skip()

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        """Call a tool and return its result as text, cut to what a model reads.

        Raises:
            ToolError: The tool reports an error, or its server fails or takes too long.
            asyncio.CancelledError: The task was cancelled; the server is told.
        """
        tool = self.tools.get(name)
        if tool is None:
            raise ToolError(f"there is no tool {name!r:.80}")
        connection = next(connection for connection in self._connections if connection.name == tool.server)
        return await connection.call(tool.own_name, arguments)

    async def close(self) -> None:
        """End all connections, and the servers that were started."""
        await asyncio.gather(*(connection.close() for connection in self._connections))

    def _check_enabled(self, connection: _Connection, names: Collection[str]) -> None:
        for name in connection.server.enabled_tools or ():
            if name not in names:
                self.problems.append(f"MCP server {connection.name}: there is no tool {printable(name)!r:.80}")

    def _add(self, connection: _Connection, listed: ListedTool) -> None:
        """Add a tool under a name of its own, or the line that says why it cannot be used."""
        where = f"MCP server {connection.name}: tool {printable(listed.name)!r:.80}"
        if not connection.server.offers(listed.name):
            return
        try:
            if len(listed.name) > _MAX_LISTED_NAME:
                raise RequestError(f"its name has {len(listed.name)} characters, more than {_MAX_LISTED_NAME}")
            schema = json.dumps(listed.input_schema)
            if len(schema) > _MAX_SCHEMA:
                raise RequestError(f"its schema has {len(schema)} characters, more than {_MAX_SCHEMA}")
            check_schema("schema", listed.input_schema)
        except (RequestError, RecursionError) as error:
            self.problems.append(f"{where}: left out: {error!s:.{_MAX_REASON}}")
            return
        name = _function_name(listed.name)
        if name in self.tools:
            name = _function_name(f"{connection.name}_{listed.name}")
            self.problems.append(f"{where}: another server has a tool of this name, so this one is called {name}")
        if name in self.tools:
            self.problems[-1] = f"{where}: left out: two tools are called {name}"
            return
        description = listed.description or ""
        if len(description) > MAX_DESCRIPTION:
            description = f"{description[:MAX_DESCRIPTION]} [cut]"
        allowed = connection.server.allows(listed.name)
        self.tools[name] = ServerTool(name, connection.name, listed.name, description, schema, allowed)


class _Connection:
    """One server's connection, held open by a task, since the package's context managers belong to one task."""

    def __init__(self, name: str, server: McpServer) -> None:
        self.name = name
        self.server = server
        self._client: Client | None = None
        self._problem = ""
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._skipped = asyncio.Event()
        self.is_starting = False
        self._said = _LastLine()
        self._reopening = asyncio.Lock()
        self._next_try = 0.0

    async def open(self) -> _Listed:
        """Start the server, and return its tools or its problem."""
        self._problem = ""
        opened: asyncio.Future[Sequence[ListedTool]] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(opened))
        skipped = asyncio.create_task(self._skipped.wait())
        waiting: list[asyncio.Future[Any]] = [opened, self._task, skipped]
        self.is_starting = True
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.is_starting = False
            skipped.cancel()
        if self._client is None:
            self._next_try = time.monotonic() + PAUSE
        return _Listed(opened.result() if opened.done() else [], self._problem)

    def skip(self) -> None:
        """Let ``open`` return without tools. The program is ended in the background, which may take seconds."""
        if self._client is not None:  # it has started, which ``open`` sees in its next turn
            return
        self._problem = f"skipped, since it had not started yet{self._said}"
        self._skipped.set()
        if self._task:
            self._task.cancel()

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        if self._client is None:
            await self.reopen()
        client = self._client
        if client is None:
            raise ToolError(f"the MCP server {self.name} is not running: {self._problem}")
        seconds = self.server.timeout
        try:
            result = await _in_time(client.call_tool(name, dict(arguments)), seconds)
        except TimeoutError:
            raise ToolError(f"the MCP server {self.name} did not answer within {seconds:g} seconds") from None
        except Exception as error:
            reason = await self._reason(error)
            if _is_closed(error) and self._task and self._client is client:  # the next call starts it again
                self._client = None
                self._task.cancel()
            raise ToolError(f"the MCP server {self.name} failed: {reason}") from None
        text = _clip(_content_text(result))
        if result.is_error:
            raise ToolError(text)
        return text

    async def reopen(self) -> _Listed | None:
        """Start a server again that has ended or failed, as ``open``; None if it runs, or was tried just before."""
        async with self._reopening:
            now = time.monotonic()
            if self._client is not None or now < self._next_try or self._closing.is_set():
                return None
            self._next_try = now + PAUSE
            return await self.open()

    async def close(self) -> None:
        self._closing.set()
        if self._task:
            if self._client is None:
                self._task.cancel()
            with suppress(Exception, asyncio.CancelledError):
                async with asyncio.timeout(_ENDING):
                    await self._task

    async def _hold(self, opened: asyncio.Future[Sequence[ListedTool]]) -> None:
        """Connect, list the tools, and stay connected until ``close``."""
        opened_client: Client | None = None
        try:
            async with asyncio.timeout(self.server.timeout) as limit, self._connected() as client:
                tools = await _list_tools(client)
                limit.reschedule(None)
                self._client = opened_client = client
                opened.set_result(tools)
                await self._closing.wait()
        except TimeoutError:
            self._problem = f"did not start within {self.server.timeout:g} seconds{self._said}"
        except Exception as error:
            self._problem = await self._reason(error)
        finally:
            if self._client is opened_client:  # and not that of a later start
                self._client = None

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        from mcp import Client
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        server = self.server
        async with AsyncExitStack() as stack:
            if server.url:
                http = await stack.enter_async_context(bounded_http(server))
                streams = streamable_http_client(server.url, http_client=http)
                transport = bounded_requests(streams, self._said.decide)
            elif hasattr(os, "killpg"):
                transport = self._said.of(partial(run_program, server, self._said.decide, self._said.misread))
            else:
                program = StdioServerParameters(
                    command=server.command, args=server.args, env=server.env, cwd=server.cwd
                )
                transport = self._said.of(partial(stdio_client, program))
            yield await stack.enter_async_context(Client(transport))

    async def _reason(self, error: BaseException) -> str:
        """Return an error in one line, with what the program said last if it has ended."""
        from mcp import MCPError

        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, FileNotFoundError):
            return f"the program {self.server.command!r:.100} does not exist, or its folder"
        if not isinstance(error, MCPError):
            text = " ".join(str(error).partition("For further information")[0].split()) or type(error).__name__
            return f"{printable(text):.{_MAX_REASON}}"
        if _is_closed(error):
            await self._said.end()
            self._problem = f"it has ended{self._said}"
            return self._problem
        return f"{printable(' '.join(error.message.split())):.{_MAX_REASON}}"


async def _in_time(call: Coroutine[Any, Any, T], seconds: float) -> T:
    """Return the result of a call. Raises TimeoutError after ``seconds``.

    Neither that nor a cancellation waits for the end of the call: the package ``mcp`` first tells the server, for up to
    five seconds if the server does not read.
    """
    task = asyncio.create_task(call)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait for it
    try:
        return await asyncio.wait_for(asyncio.shield(task), seconds)
    finally:
        task.cancel()


def _is_closed(error: BaseException) -> bool:
    """Return True if a server has ended its connection."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED


async def _list_tools(client: Client) -> list[ListedTool]:
    """Return a server's tools; pages after more than ``_MAX_LISTED`` tools are not asked for.

    Raises OSError if descriptions and schemas are too large together.
    """
    tools: list[ListedTool] = []
    cursor: str | None = None
    n_characters = 0
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        n_characters += sum(len(tool.description or "") + len(json.dumps(tool.input_schema)) for tool in page.tools)
        if n_characters > _MAX_LISTED_CHARACTERS:
            raise OSError(f"it lists tools of more than {_MAX_LISTED_CHARACTERS >> 20} MiB")
        cursor = page.next_cursor
        if not cursor or len(tools) > _MAX_LISTED:
            break
    return tools


def _content_text(result: CallToolResult) -> str:
    """Return the texts of a result; other content is named."""
    parts: list[str] = []
    for block in result.content:
        if block.type == "text":
            parts.append(block.text)
        elif block.type == "resource":
            resource = block.resource
            parts.append(getattr(resource, "text", None) or f"[resource {resource.uri}: no text]")
        elif block.type == "resource_link":
            parts.append(f"[resource {block.uri}]")
        else:
            parts.append(f"[{block.type} of type {block.mime_type}, not shown]")
    if not parts and result.structured_content is not None:
        parts.append(result_text(result.structured_content))
    return "\n".join(parts)


def _clip(text: str) -> str:
    """Return at most ``MAX_RESULT`` characters, with a line that says what was cut."""
    if len(text) <= MAX_RESULT:
        return text
    n_shown = MAX_RESULT - 100  # leaves room for the line
    return f"{text[:n_shown]}\n[cut: the result has {len(text)} characters, {n_shown} are shown]"


def _function_name(text: str) -> str:
    return _NAME.sub("_", text)[:_MAX_NAME] or "tool"


class _LastLine:
    """The last line that a program writes to standard error, and the last of its output that is not a message.

    As a text, the end of a line about the program.
    """

    def __init__(self) -> None:
        self._line = self._verdict = self._misread = ""
        self._reader: threading.Thread | None = None

    def decide(self, reason: str) -> None:
        """Set why the program was killed, which counts more than its last line."""
        self._verdict = reason

    def misread(self, line: bytes) -> None:
        """Keep a line of standard output that is not a message, such as the text of a ``print``."""
        self._misread = printable(line[:_MAX_REASON].decode(errors="replace").strip())

    def __str__(self) -> str:
        if self._verdict:
            return f": {self._verdict}"
        notes = [f"it said: {printable(self._line.strip()):.{_MAX_REASON}}"] if self._line else []
        if self._misread:
            notes.append(f"its standard output is not MCP: {self._misread:.80}")
        return f" ({'; '.join(notes)})" if notes else ""

    @asynccontextmanager
    async def of(self, start: Callable[[TextIO], AbstractAsyncContextManager[T]]) -> AsyncIterator[T]:
        """Enter the context that ``start`` returns for the file that is the program's standard error."""
        self._line = self._verdict = self._misread = ""
        reading, writing = os.pipe()
        self._reader = threading.Thread(target=self._read, args=(reading,), name="pumice-mcp-stderr", daemon=True)
        self._reader.start()
        with os.fdopen(writing, "w") as errors:
            async with start(errors) as streams:
                errors.close()  # only the program writes, so that reading ends with it
                yield streams

    async def end(self) -> None:
        """Wait for the program's last line; not for long, since programs that it started may go on."""
        if self._reader:
            await asyncio.to_thread(self._reader.join, _ENDING)

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, errors="replace") as lines:
            while line := lines.readline(1 << 12):
                self._line = line if line.strip() else self._line
