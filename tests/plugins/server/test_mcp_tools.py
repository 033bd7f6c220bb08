"""Tools of MCP servers that the server runs: by OpenAI's own client, and of servers that misbehave."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection

import pytest

import pumice

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="MCP servers belong to a forked process")
pytest.importorskip("mcp")

from imported_late import Late  # noqa: E402
from mcp_servers import raw_server  # noqa: E402
from scripted_server_tools import tool_server  # noqa: E402
from waiting import PATIENCE, wait_until  # noqa: E402

openai = Late("openai")

ASK = [{"role": "user", "content": "Add"}]
FUNCTION = {"name": "echo", "description": "The client's.", "parameters": {"type": "object", "properties": {}}}
MCP = {"type": "mcp", "server_label": "raw"}
MORE = {"other": ["echo", "flood"], "slow": ["hang"], "brittle": ["die", "live"]}
CANCELLED = "notifications/cancelled"
NEVER = {**MCP, "require_approval": "never"}


def call(name, id="call1", **arguments):
    return pumice.ToolCall(name, arguments, id)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("raw")


@pytest.fixture(scope="module")
def server(model, folder):
    servers = {"raw": raw_server(folder, ["echo", "hang", "fail", "big", "wrong"])}
    servers |= {name: raw_server(folder / name, tools) for name, tools in MORE.items()}
    servers["absent"] = {"command": "/nowhere/server"}
    with tool_server(model, servers) as server:
        assert server.client.get("/tools").status_code == 200  # the servers have started, and noted what they heard
        yield server


@pytest.fixture(autouse=True)
def fresh(server):
    server.model.script, server.model.asked = [], []


def test_a_response_runs_tools_until_the_model_answers(client, server):
    server.model.script = [[call("echo", city="Oslo")], "It rains."]
    response = client.responses.create(model="demo", input="Add", tools=[NEVER])
    listed, called, message = response.output
    assert (listed.type, listed.server_label) == ("mcp_list_tools", "raw")
    assert [tool.name for tool in listed.tools] == ["echo", "hang", "fail", "big", "wrong"]
    assert (called.type, called.name, called.server_label, called.status) == ("mcp_call", "echo", "raw", "completed")
    assert json.loads(called.arguments) == json.loads(called.output) == {"city": "Oslo"}
    assert (message.type, response.output_text, response.status) == ("message", "It rains.", "completed")
    assert response.usage.output_tokens == 18  # of both answers
    assistant, result = server.model.asked[1][0][1:]
    assert assistant["tool_calls"][0]["function"]["name"] == "echo"
    assert (result["role"], json.loads(result["content"])) == ("tool", {"city": "Oslo"})
    server.model.script = ["Yes."]
    other = {**NEVER, "server_label": "other"}
    before = {"previous_response_id": response.id}
    follows = client.responses.create(model="demo", input="Sure?", tools=[NEVER, other], **before)
    assert [item.server_label for item in follows.output if item.type == "mcp_list_tools"] == ["other"]
    roles = [message["role"] for message in server.model.asked[2][0]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


def test_a_stream_has_the_events_of_calls(client, server):
    server.model.script = [[call("echo", a=1), call("fail", "call2")], "Done."]
    with client.responses.stream(model="demo", input="Add", tools=[NEVER]) as stream:
        events = list(stream)
    kinds = [event.type.removeprefix("response.mcp_") for event in events if "mcp" in event.type]
    listed, ran = ["list_tools.in_progress", "list_tools.completed"], ["call.in_progress", "call_arguments.delta"]
    ran += ["call_arguments.done"]
    assert kinds == [*listed, *ran, "call.completed", *ran, "call.failed"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    output = events[-1].response.output
    assert [item.type for item in output] == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    assert [event.output_index for event in events if event.type == "response.output_item.done"] == [0, 1, 2, 3]
    assert output[2].error.content == [{"type": "text", "text": "no such city"}]
    assert [message["content"] for message in server.model.asked[1][0][-2:]] == ['{"a": 1}', "Error: no such city"]


@pytest.mark.parametrize("stored", [True, False])
def test_calls_wait_for_approval_by_default(client, server, folder, stored):
    server.model.script = [[call("echo", city="Oslo"), call("echo", "call2", city="Rome")]]
    before = (folder / "heard").read_text().count("echo")
    first = client.responses.create(model="demo", input="Add", tools=[MCP], store=stored)
    asked, other = [item for item in first.output if item.type == "mcp_approval_request"]
    assert (first.status, asked.name, json.loads(other.arguments)) == ("completed", "echo", {"city": "Rome"})
    assert (folder / "heard").read_text().count("echo") == before
    answers = [{"type": "mcp_approval_response", "approval_request_id": other.id, "approve": True}]
    answers += [{"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": False, "reason": "no"}]
    given = answers if stored else [{"role": "user", "content": "Add"}, *first.to_dict()["output"], *answers]
    follows = {"previous_response_id": first.id} if stored else {}
    second = client.responses.create(model="demo", input=given, tools=[MCP], **follows)
    (called,) = [item for item in second.output if item.type == "mcp_call"]
    assert (called.approval_request_id, json.loads(called.output)) == (other.id, {"city": "Rome"})
    assert second.output_text == "Done."
    results = [message["content"] for message in server.model.asked[-1][0] if message["role"] == "tool"]
    assert sorted(results) == ["Error: the user refused this call: no", '{"city": "Rome"}']


def test_chat_completions_have_one_answer_and_its_calls(client, server):
    server.model.script = [[call("echo", a=1)], "Done."]
    whole = client.chat.completions.create(model="demo", messages=ASK, tools=[MCP])
    choice = whole.choices[0]
    assert (choice.finish_reason, choice.message.content, choice.message.tool_calls) == ("stop", "Done.", None)
    assert [(each["name"], each["output"]) for each in choice.message.mcp_calls] == [("echo", '{"a": 1}')]
    server.model.script = [[call("echo", a=1)], "Done."]
    chunks = list(client.chat.completions.create(model="demo", messages=ASK, tools=[MCP], stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(delta.content or "" for delta in deltas) == "Done."
    assert [each["output"] for delta in deltas for each in getattr(delta, "mcp_calls", [])] == ['{"a": 1}']
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_functions_of_the_client_end_the_turn(client, server):
    """A tool of the same name as a function has its server's name before it."""
    functions = [{"type": "function", "function": FUNCTION}]
    server.model.script = [[call("raw_echo", a=1), call("echo", "call2", a=2)]]
    choice = client.chat.completions.create(model="demo", messages=ASK, tools=[*functions, MCP]).choices[0]
    assert [tool["function"]["name"] for tool in server.model.asked[0][1]["tools"]][:2] == ["echo", "raw_echo"]
    assert choice.finish_reason == "tool_calls"
    assert [each.function.arguments for each in choice.message.tool_calls] == ['{"a": 2}']
    assert [each["output"] for each in choice.message.mcp_calls] == ['{"a": 1}']


def test_a_server_that_hangs(model, tmp_path):
    """The same seconds are those of its start, which takes longer on a slow machine."""
    for seconds in (1, 10, 60):
        server = raw_server(tmp_path, ["hang"], timeout=seconds)
        with tool_server(model, {"raw": server}) as hasty:
            answer = hasty.client.post("/tools", json={"tool": "hang"})
        if answer.status_code == 200:
            break
    assert answer.json()["error"] == f"the MCP server raw did not answer within {seconds} seconds"


def test_servers_that_flood_or_lie(client, server):
    server.model.script = [[call(name, f"call{name}") for name in ("big", "wrong")]]
    client.responses.create(model="demo", input="Add", tools=[NEVER])
    big, wrong = [message["content"] for message in server.model.asked[1][0][-2:]]
    assert len(big) < 1000  # all that fits the demo model
    assert "[cut: the result has 32726 characters" in big
    assert wrong.startswith("Error: the MCP server raw failed: ")


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_cancels_its_call(server, folder, stream):
    server.model.script = [[call("slow_hang")]]
    heard = folder / "slow" / "heard"
    n_hung, n_cancelled = (heard.read_text().splitlines().count(word) for word in ("hang", CANCELLED))
    body = {"input": "Add", "tools": [{**NEVER, "server_label": "slow"}], "stream": stream}
    with closing(HTTPConnection(server.url.removeprefix("http://"), timeout=PATIENCE)) as connection:
        connection.request("POST", "/v1/responses", json.dumps(body))
        wait_until(lambda: heard.read_text().splitlines().count("hang") > n_hung)
    wait_until(lambda: heard.read_text().splitlines().count(CANCELLED) > n_cancelled)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("server_label", "none", "there is no MCP server 'none' (known: raw, other, slow, brittle, absent)"),
        ("server_label", 3, "expected the name of an MCP server"),
        ("server_url", "http://127.0.0.1:1", "only MCP servers of this server's configuration"),
        ("headers", {"a": "b"}, "only MCP servers of this server's configuration"),
        ("allowed_tools", ["rm"], "raw has no tool 'rm' that clients may use"),
        ("allowed_tools", 3, "expected a list of names"),
        ("require_approval", "sometimes", "expected"),
    ],
)
def test_tools_that_a_client_may_not_name(server, name, value, problem):
    response = server.client.post("/v1/responses", json={"input": "Add", "tools": [{**MCP, name: value}]})
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(f"tools[0].{name}: {problem}")


def test_single_tools_are_listed_and_called(server):
    listed = server.client.get("/tools").json()
    assert [tool["tool"] for tool in listed][:2] == ["echo", "hang"]
    assert listed[0]["definition"]["function"]["parameters"] == {"type": "object"}
    response = server.client.post("/tools", json={"tool": "echo", "params": {"a": 1}})
    assert response.json() == {"plain_text_response": '{"a": 1}'}
    assert server.client.post("/tools", json={"tool": "fail"}).json() == {"error": "no such city"}
    assert server.client.post("/tools", json={"tool": "rm"}).status_code == 400


def test_a_message_without_end_ends_its_server(server):
    error = server.client.post("/tools", json={"tool": "flood"}).json()["error"]
    assert error == "the MCP server other failed: it has ended: it sent a message of more than 16 MiB"


def test_a_server_that_dies_is_started_again(server):
    assert "it has ended" in server.client.post("/tools", json={"tool": "die"}).json()["error"]
    assert server.client.post("/tools", json={"tool": "live"}).json() == {"plain_text_response": "{}"}


def test_rows_of_batches_run_tools(model, tmp_path):
    with tool_server(model, {"raw": raw_server(tmp_path / "raw", ["echo"])}, batches=tmp_path) as server:
        server.model.script = [[call("echo", a=1)], "One.", [call("echo", a=2)]]
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as client:
            chat = batch_of(client, "/v1/chat/completions", {"messages": ASK, "tools": [MCP]})
            message = chat["choices"][0]["message"]
            assert (message["content"], len(message["mcp_calls"])) == ("One.", 1)
            response = batch_of(client, "/v1/responses", {"input": "Add", "tools": [MCP]})  # nobody can approve
            assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "mcp_approval_request"]


def batch_of(client, url, body):
    """Return the answer to a batch of one request."""
    line = json.dumps({"custom_id": "a", "method": "POST", "url": url, "body": body}).encode()
    file = client.files.create(file=("in.jsonl", line), purpose="batch")
    made = client.batches.create(input_file_id=file.id, endpoint=url, completion_window="24h")
    wait_until(lambda: client.batches.retrieve(made.id).output_file_id)
    text = client.files.content(client.batches.retrieve(made.id).output_file_id).text
    return json.loads(text)["response"]["body"]


def test_answers_and_calls_are_bounded(client, server):
    server.model.script = [[call("echo", f"call{turn}")] for turn in range(9)]
    response = client.responses.create(model="demo", input="Add", tools=[NEVER])
    assert [item.type for item in response.output].count("mcp_call") == 9
    choices = [options.get("tool_choice") for _, options in server.model.asked]
    assert choices == [None] * 9 + ["none"]
    server.model.script = [[call("echo", f"call{number}") for number in range(40)]]
    response = client.responses.create(model="demo", input="Add", tools=[NEVER])
    failed = [item for item in response.output if item.type == "mcp_call" and item.error]
    assert len(failed) == 8
    server.model.script, server.model.asked = [[call("echo"), call("echo")]], []
    response = client.responses.create(model="demo", input="Add", tools=[NEVER], max_tool_calls=1)
    assert [item.status for item in response.output if item.type == "mcp_call"] == ["completed", "failed"]
    assert server.model.asked[1][1]["tool_choice"] == "none"


def test_a_server_that_does_not_answer_keeps_nobody_waiting(model, tmp_path, caplog):
    """Its tools are there once it answers; who names it waits for that."""
    servers = {"raw": raw_server(tmp_path / "raw", ["echo"]), "late": raw_server(tmp_path / "late", ["echo", "live"])}
    servers["late"]["args"].append(str(tmp_path / "go"))
    with caplog.at_level("INFO", "pumice"), tool_server(model, servers) as server:

        def tools() -> list[str]:
            return [tool["display_name"] for tool in server.client.get("/tools").json()]

        def named(label: str) -> int:
            tool = {**MCP, "server_label": label, "require_approval": "never"}
            return server.client.post("/v1/chat/completions", json={"messages": ASK, "tools": [tool]}).status_code

        assert tools() == ["raw: echo"]
        assert named("raw") == 200
        (warning,) = [record for record in caplog.records if "MCP" in record.message]
        assert warning.levelname == "WARNING"
        assert warning.message.startswith(
            "MCP server late: no answer to `initialize` yet; requests that do not name it"
        )
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(named, "late")
            assert named("raw") == 200
            assert not waits.done()
            (tmp_path / "go").touch()
            assert waits.result(PATIENCE) == 200
        assert tools() == ["raw: echo", "late: echo", "late: live"]
        assert caplog.messages.count("MCP server late has started") == 1
