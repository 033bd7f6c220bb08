"""Tools of MCP servers in ``pumice chat``: another process runs what the user allows."""

import asyncio
import json
import os
import select
from concurrent.futures import ThreadPoolExecutor

import pytest

import pumice
from mcp_servers import raw_server
from scripted_calls import call, scripted_model
from waiting import PATIENCE, wait_until

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="MCP servers belong to a forked process")
pytest.importorskip("mcp")

from pumice.chat.tools import ToolError  # noqa: E402
from pumice.cli.chat.approvals import Approvals  # noqa: E402
from pumice.cli.chat.conversation import Conversation  # noqa: E402
from pumice.cli.chat.tool_host import hosted_tools, tools_in_other_process  # noqa: E402
from pumice.mcp import ServerTool, read_servers  # noqa: E402
from pumice.mcp.host import read_arguments  # noqa: E402


@pytest.fixture
def configuration(tmp_path):
    server = raw_server(tmp_path, ["echo", "hang", "fail"], alwaysAllow=["echo", "hang"])
    return {"mcpServers": {"raw": server, "gone": {"command": "no-such-program"}}}


def test_another_process_runs_tools_that_are_allowed(configuration, tmp_path, monkeypatch):
    with tools_in_other_process(read_servers(configuration)):
        hosted = hosted_tools()
        echo, hang, fail = hosted.wait(print)
        assert hosted.problems == ["MCP server gone: the program 'no-such-program' does not exist, or its folder"]
        assert json.loads(echo.run(city="Oslo")) == {"city": "Oslo"}
        with pytest.raises(ToolError, match="the user could not be asked"):
            fail.run()

        def interrupt(self, timeout=None):  # Ctrl-C, once the server has the call
            wait_until(lambda: "hang" in (tmp_path / "heard").read_text())
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("concurrent.futures.Future.result", interrupt)
            with pytest.raises(KeyboardInterrupt):
                hang.run()
        assert echo.run() == "{}"  # the answer to this call, not to the one before
        wait_until(lambda: "notifications/cancelled" in (tmp_path / "heard").read_text())
    assert hosted_tools() is None
    with pytest.raises(ToolError, match="has ended; restart the chat"):
        echo.run()


@pytest.mark.parametrize("is_after", [False, True])
def test_ctrl_c_at_any_place_keeps_each_call_to_its_answer(configuration, monkeypatch, is_after):
    """Also as the call is sent, before its answer is waited for."""
    submit = ThreadPoolExecutor.submit

    def interrupt(*arguments):
        monkeypatch.undo()
        if is_after:
            submit(*arguments)
        raise KeyboardInterrupt

    with tools_in_other_process(read_servers(configuration)):
        echo, _, _ = hosted_tools().wait(print)
        monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            echo.run(number=1)
        assert [json.loads(echo.run(number=number)) for number in (2, 3)] == [{"number": 2}, {"number": 3}]


@pytest.mark.parametrize(
    ("answers", "refusals"),
    [
        (["y", "n"], ["", "the user refused this call"]),
        (["a"], ["", "", ""]),
        (["v"], ["the user refused this call", "the user does not allow this tool"]),
        (["\x04"], ["the user refused this call"]),
        (["what"], ["the user refused this call"]),
    ],
)
def test_the_user_is_asked_for_each_call_and_tool(answers, refusals):
    import pty

    keyboard, terminal = pty.openpty()
    reading, writing = os.pipe()
    tool = ServerTool("write", "disk", "write", "", "{}", allowed=False)

    async def ask() -> list[str]:
        approvals = Approvals(terminal, writing)
        os.write(keyboard, b"yes\n")  # before any question
        assert select.select([terminal], [], [], PATIENCE)[0]  # the kernel brings it when it has time
        given = []
        for number, _ in enumerate(refusals):
            asked = asyncio.create_task(approvals.refusal(tool, {"path": "\u202e/etc"}))
            if number < len(answers):
                text = b""
                while b"ne[v]er: " not in text:
                    text += await asyncio.to_thread(os.read, reading, 1 << 12)
                assert b'disk: write\n  path="?/etc"\n' in text
                end = b"" if answers[number] == "\x04" else b"\n"
                os.write(keyboard, answers[number].encode() + end)
            given.append(await asked)
        return given

    try:
        assert asyncio.run(ask()) == refusals
    finally:
        for end in (keyboard, terminal, reading, writing):
            os.close(end)


def test_the_user_sees_every_argument_of_a_call_that_runs():
    reading, writing = os.pipe()
    tool = ServerTool("write", "disk", "write", "", "{}", allowed=True)
    approvals = Approvals(None, writing)
    call = '{"text": "\\u0061%s\\u007a", "path": "a", "path": "/\\u0065tc", "a=1 b": {"é": 1}}' % ("-" * 9000)
    try:
        assert asyncio.run(approvals.refusal(tool, read_arguments(call))) == ""
        shown = os.read(reading, 1 << 16).decode()
        many = dict.fromkeys(map(str, range(65)), 1)
        assert "at most 64 arguments" in asyncio.run(approvals.refusal(tool, many))
        assert "at most 200 characters" in asyncio.run(approvals.refusal(tool, {"k" * 201: 1}))
    finally:
        os.close(reading)
        os.close(writing)
    text = f'"a{"-" * 998}[… 7504 characters …]{"-" * 498}z"'
    assert f'disk: write\n  text={text}\n  path="/etc"\n  "a=1 b"={{"é": 1}}' in shown


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with scripted_model(tmp_path_factory.mktemp("tools")) as model:
        yield model


@pytest.fixture
def chat(model, session):
    """Run a session over lines, with tools and a script of the model's answers."""

    def chat(lines, tools, script):
        conversation = Conversation(model, {"script": script, "max_tokens": 300})
        return conversation, conversation.take_tools(tools), *session(conversation, *lines)

    return chat


def tool(name: str, run, schema: object = None) -> pumice.Tool:
    return pumice.Tool(name, f"To {name}", schema or {"type": "object"}, run)


def test_results_of_calls_are_read_and_shown(chat):
    script = [call("read", path="a"), "It says hello."]
    read = tool("read", lambda path: f"hello {path}\nand more")
    conversation, problems, stdout, stderr = chat(["What is in a?", "/tools"], [read], script)
    assert problems == []
    assert [message["role"] for message in conversation.messages] == ["user", "assistant", "tool", "assistant"]
    assert conversation.messages[2]["content"] == "hello a\nand more"
    assert stdout.endswith("It says hello.")
    assert "-> hello a ... (16 characters)" in stderr
    assert "read  To read" in stderr


def test_ctrl_c_ends_a_call_and_the_conversation_goes_on(chat):
    def interrupt(**_):
        raise KeyboardInterrupt

    script = ["Hm. " + call("read", path="a"), "Later."]
    conversation, _, _, stderr = chat(["What is in a?", "And now?"], [tool("read", interrupt)], script)
    roles = [message["role"] for message in conversation.messages]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]
    assert conversation.messages[2]["content"] == "Error: the user cancelled this call"
    assert "error" not in stderr
