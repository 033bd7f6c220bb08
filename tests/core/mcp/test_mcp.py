"""MCP servers: their configuration, and tools of good and bad ones."""

import asyncio
import logging
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import uvicorn

import pumice
from mcp_servers import described, raw_server
from pumice.chat import ToolCall
from pumice.chat.tools import ToolError
from pumice.errors import ConfigError, UnavailableError
from pumice.mcp import Connections, read_servers
from pumice.mcp.connections import _list_tools
from pumice.mcp.transports import MAX_UNANSWERED, TOO_MANY, bounded_requests
from server_thread import in_thread
from waiting import gone, wait_until

pytest.importorskip("mcp")
import time

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse

from pumice.chat.tools import MAX_RESULT
from pumice.mcp import connections
from waiting import at_best

NAMES = ["echo", "die", "hang", "wrong", "fail", "big", "picture", "structured"]


def configured(**servers) -> dict:
    return {"mcpServers": servers}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ([], 'mcp: expected {"mcpServers"'),
        ({"mcpServers": []}, 'mcp: expected {"mcpServers"'),
        (configured(a="npx"), "mcp: mcpServers.a: expected an object with command or url"),
        (configured(a={}), "mcpServers.a: give either command or url"),
        (configured(a={"command": "x", "url": "http://x"}), "mcpServers.a: give either command or url"),
        (configured(a={"command": "x", "args": "y"}), "mcpServers.a: args: should be a list of strings, not 'y'"),
        (configured(a={"command": "x", "timeout": 0}), "timeout: should be a number, above 0 and at most 3600, not 0"),
        (configured(a={"command": "x\0"}), "mcpServers.a: a null character"),
        (configured(a={"url": "file:///x"}), "url should begin with http"),
        (configured(a={"url": "http://x", "type": "sse"}), "SSE is obsolete"),
        ({"mcpServers": {str(number): {"command": "x"} for number in range(33)}}, "33 MCP servers; at most 32"),
    ],
)
def test_a_wrong_configuration_is_one_line(config, problem):
    with pytest.raises(ConfigError, match=r"^[^\n]*$") as error:
        read_servers(config)
    assert problem in str(error.value)


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """Tools of a raw server, by their names."""
    folder = tmp_path_factory.mktemp("raw")
    with pumice.mcp_tools(configured(raw=raw_server(folder, NAMES))) as tools:
        yield {"heard": folder / "heard", **{tool.name: tool for tool in tools}}


def test_cancelling_an_answer_cancels_the_call(tools):
    heard = tools["heard"]

    async def cancel() -> None:
        task = asyncio.create_task(tools["hang"].aanswer(ToolCall("hang", {}, "1")))
        while "hang" not in heard.read_text():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    wait_until(lambda: "notifications/cancelled" in heard.read_text())
    assert asyncio.run(tools["echo"].aanswer(ToolCall("echo", {"a": 1}, "1"))) == '{"a": 1}'


def test_requests_without_end_end_their_server(tmp_path):
    """The package began to answer each of them, and waited five seconds longer than the timeout."""
    tools = ["ask", "echo"]
    with pumice.mcp_tools(configured(raw=raw_server(tmp_path, tools, timeout=20))) as (ask, echo):
        failed = ask.answer(ToolCall("ask", {}, "1"))
        assert failed == f"Error: the MCP server raw failed: it has ended: {TOO_MANY}"
        assert "1" in echo.answer(ToolCall("echo", {"a": 1}, "2"))


def test_requests_of_a_server_by_http_are_bounded():
    async def scenario() -> tuple[int, list[str]]:
        reasons: list[str] = []
        to_client, incoming = anyio.create_memory_object_stream[SessionMessage](0)
        outgoing, to_server = anyio.create_memory_object_stream[SessionMessage](0)

        @asynccontextmanager
        async def transport():
            yield incoming, outgoing

        async def ask() -> None:
            for number in range(1000):
                await to_client.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=number, method="ping")))

        async with bounded_requests(transport(), reasons.append) as (received, given):
            asking = asyncio.create_task(ask())
            for _ in range(10):  # answered in order
                request = await received.receive()
                answer = JSONRPCResponse(jsonrpc="2.0", id=request.message.id, result={})
                await asyncio.gather(given.send(SessionMessage(answer)), to_server.receive())
            unanswered = [request async for request in received]
            asking.cancel()
        return len(unanswered), reasons

    assert asyncio.run(scenario()) == (MAX_UNANSWERED, [TOO_MANY])


def test_output_that_is_not_the_protocol_is_quoted():
    chatty = {"command": sys.executable, "args": ["-c", "print('Listening on port 80')"]}

    async def failures() -> dict[str, str]:
        connections = Connections(read_servers(configured(chatty=chatty)))
        await connections.open()
        await connections.close()
        return connections.failures

    quoted = "(its standard output is not MCP: Listening on port 80)"
    assert asyncio.run(failures()) == {"chatty": f"MCP server chatty: it has ended {quoted}"}


def test_servers_that_hang_or_die_end_alone(tmp_path):
    brittle = raw_server(tmp_path / "brittle", ["die", "echo"])
    servers = configured(slow=raw_server(tmp_path / "slow", ["hang"]), brittle=brittle)

    async def problems() -> list[str]:
        connections = Connections(read_servers(servers))
        await connections.open()
        slow = connections._connections[0]
        slow.server = replace(slow.server, timeout=0.05)  # for the call, not for the start
        errors = [await failure(connections, "die")]
        assert await connections.call("echo", {}) == "{}"  # it was started again, but is not at once the next time
        errors += [await failure(connections, name) for name in ("die", "echo", "hang")]
        await connections.close()
        return errors

    async def failure(connections: Connections, name: str) -> str:
        with pytest.raises(ToolError, match=r"^[^\n]*$") as error:
            await connections.call(name, {})
        return str(error.value)

    died, _, after, slow = asyncio.run(problems())
    assert died.startswith("the MCP server brittle failed: ")
    assert died.endswith("(it said: out of paper)")
    assert after.startswith("the MCP server brittle is not running: it has ended")
    assert slow == "the MCP server slow did not answer within 0.05 seconds"


def test_failed_servers_are_started_again_after_a_pause(tmp_path, monkeypatch):
    program = tmp_path / "program"
    servers = read_servers(configured(a={**raw_server(tmp_path / "a", ["echo"]), "command": str(program)}))

    async def names_after_starts() -> list[tuple[list[str], list[str]]]:
        connections = Connections(servers)
        seen = []

        async def start(pause: float) -> None:
            monkeypatch.setattr("pumice.mcp.connections.PAUSE", pause)
            async for _ in connections.reopened(["a"], 2.0):
                seen.append(([*connections.tools], [*connections.failures]))

        await connections.open()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        program.chmod(0o755)
        await start(1000.0)
        connections._connections[0]._next_try = 0.0
        await asyncio.gather(start(1000.0), start(1000.0))
        await start(0.0)
        assert await connections.call("echo", {}) == "{}"
        await connections.close()
        return seen

    failed, *others = asyncio.run(names_after_starts())
    assert failed == ([], ["a"])
    assert others == [(["echo"], [])] * 3


STUBBORN = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
path = pathlib.Path(sys.argv[1])
path.with_suffix(".new").write_text(str(os.getpid()))
path.with_suffix(".new").rename(path)
while True:
    time.sleep(1)
"""

INTERRUPTED = """
import os, signal, sys, threading, time
import pumice

def interrupt():
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    with pumice.mcp_tools({"mcpServers": {"a": {"command": sys.executable, "args": ["-c", *sys.argv[1:]]}}}):
        pass
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupted_start_ends_its_servers(tmp_path):
    pid = tmp_path / "pid"
    command = [sys.executable, "-c", INTERRUPTED, STUBBORN, str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
    wait_until(lambda: gone(int(pid.read_text())), 1.0)


def test_a_server_that_does_not_start_is_an_error(tmp_path):
    gone, web = {"command": "no-such-program"}, {"url": "http://127.0.0.1:1/mcp"}
    servers = configured(gone=gone, brief=raw_server(tmp_path / "brief", []), web=web)
    with pytest.raises(UnavailableError) as error, pumice.mcp_tools(servers):
        pass
    gone, brief, web = str(error.value).split("; ")
    assert gone == "MCP server gone: the program 'no-such-program' does not exist, or its folder"
    assert brief.startswith("MCP server brief: ")
    assert brief.endswith("(it said: cannot open the database)")
    assert web.startswith("MCP server web: ")


def test_tools_that_clash_or_cannot_be_used_are_named(tmp_path, caplog):
    deep: dict = {"type": "object"}
    for _ in range(70):
        deep = {"type": "object", "properties": {"a": deep}}
    long = described("long", {"type": "object", "description": "x" * 70_000})
    first = ["get.city", "secret", described("deep", deep), long, "n" * 300]
    servers = configured(
        a=raw_server(tmp_path / "a", first, disabledTools=["secret"]),
        b=raw_server(tmp_path / "b", ["get_city", *(f"tool{i}" for i in range(200))]),
    )
    with caplog.at_level(logging.WARNING, "pumice"), pumice.mcp_tools(servers) as tools:
        names = [tool.name for tool in tools]
    assert names[:3] == ["get_city", "b_get_city", "tool0"]
    assert len(names) == 128
    assert [record.getMessage().partition(": left out")[0] for record in caplog.records] == [
        "MCP server a: tool 'deep'",
        "MCP server a: tool 'long'",
        f"MCP server a: tool '{'n' * 79}",
        "MCP server b: tool 'get_city': another server has a tool of this name, so this one is called b_get_city",
        "MCP: 74 tools are left out, since a chat takes at most 128; list those that it does not need as disabledTools",
    ]


def test_a_list_of_tools_without_end_is_cut():
    class Endless:
        n_pages = 0

        async def list_tools(self, cursor: str | None) -> SimpleNamespace:
            self.n_pages += 1
            tool = SimpleNamespace(name="tool", description=text, input_schema={"type": "object", "title": text})
            return SimpleNamespace(tools=[tool] * n_tools, next_cursor="more")

    client, n_tools, text = Endless(), 400, "a"
    assert len(asyncio.run(_list_tools(client))) == 1200
    assert client.n_pages == 3
    client, n_tools, text = Endless(), 1, "a" * (3 << 20)
    with pytest.raises(OSError, match="it lists tools of more than 16 MiB"):
        asyncio.run(_list_tools(client))
    assert client.n_pages == 3


def test_a_server_of_the_package_answers_by_http():
    """Server and client of the official package, through this package's connection."""
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("sums")

    @server.tool(structured_output=False)
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    application = uvicorn.Config(server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    with in_thread(application) as address:
        config = configured(sums={"url": f"{address}/mcp", "headers": {"x-key": "1"}})
        with pumice.mcp_tools(config) as tools:
            assert [tool.name for tool in tools] == ["add"]
            assert tools[0].run(a=2, b=3) == "5"
            with pytest.raises(ToolError, match="validation error"):
                tools[0].run(a="x", b=1)


def test_a_result_of_megabytes_is_cut_visibly(tools):
    text = tools["big"].run()
    assert len(text) <= MAX_RESULT
    assert text.endswith(f"\n[cut: the result has 2000000 characters, {MAX_RESULT - 100} are shown]")


def test_a_server_that_does_not_read_ends_a_call_in_time(tmp_path, monkeypatch):
    """The package tells such a server of the end, for five seconds more."""
    in_time = connections._in_time
    monkeypatch.setattr(connections, "_in_time", lambda call, seconds: in_time(call, seconds / 10))  # not the start
    with pumice.mcp_tools(configured(raw=raw_server(tmp_path, ["deaf"], timeout=20))) as (deaf,):

        def seconds() -> float:
            deaf.answer(ToolCall("deaf", {}, "1"))
            began = time.monotonic()
            failed = deaf.answer(ToolCall("deaf", {"a": "x" * 300_000}, "2"))
            assert "within 20 seconds" in failed
            return time.monotonic() - began

        assert at_best(seconds, 5.0) < 5.0
