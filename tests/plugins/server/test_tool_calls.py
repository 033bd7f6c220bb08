"""Reasoning and tool calls as each protocol has them, of a model that says what it is told."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import ollama
import pytest

import pumice
from imported_late import Late
from pumice.chat import ChatRequest
from pumice.options import TEMPLATE
from scripted_server_tools import Said
from server_thread import Running, running

anthropic = Late("anthropic")
openai = Late("openai")

FUNCTION = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": FUNCTION}]
CHAT = [{"role": "user", "content": "Add"}]
CALLS = [pumice.ToolCall("add", {"a": 1}, "call1"), pumice.ToolCall("add", {"a": 2}, "call2")]
ARGUMENTS = [("call1", '{"a": 1}'), ("call2", '{"a": 2}')]
DELTAS = [*(pumice.ChatDelta(reasoning=part) for part in ("Let me ", "see.")), pumice.ChatDelta(content="I will.")]
CUT = [pumice.ToolCall("add", {"a": 1}, "call1", partial=True)]


def told(calls: Sequence[pumice.ToolCall] = CALLS, reason: str = "tool_calls") -> Said:
    return Said([*DELTAS, *(pumice.ChatDelta(tool_calls=[call]) for call in calls)], reason)


class Scripted:
    """A model that answers each chat alike, and keeps what it was asked."""

    def __init__(self, model: pumice.Model) -> None:
        self._model = model
        self.asked: dict[str, Any] = {}
        self.tell = told
        self.template = Asking(model.template, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def achat_stream(self, chat: Any, **options: Any) -> Said:
        return self.tell()


class Asking:
    """A template that keeps what it is asked to prepare."""

    def __init__(self, template: Any, model: Scripted) -> None:
        self._template, self._model = template, model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._template, name)

    def prepare(self, messages: Any, **options: Any) -> Any:
        self._model.asked = {"messages": messages, **options}
        return self._template.prepare(messages, **options)


@pytest.fixture(scope="module")
def scripted(model) -> Iterator[Running]:
    with running(Scripted(model)) as server:
        yield server


NAMED = {"type": "function", "function": {"name": "add"}}
CHOICES = [
    ("/v1/chat/completions", "auto", "auto", ["add", "none"]),
    ("/v1/chat/completions", "none", "none", []),
    ("/v1/chat/completions", "required", "required", ["add", "none"]),
    ("/v1/chat/completions", NAMED, "required", ["add"]),
    ("/v1/chat/completions", {"type": "function", "function": {"name": "none"}}, "required", ["none"]),
    ("/v1/responses", "none", "none", []),
    ("/v1/responses", "required", "required", ["add", "none"]),
    ("/v1/responses", {"type": "function", "name": "add"}, "required", ["add"]),
    ("/v1/responses", {"type": "function", "name": "none"}, "required", ["none"]),
    ("/v1/messages", {"type": "auto"}, "auto", ["add", "none"]),
    ("/v1/messages", {"type": "none"}, "none", []),
    ("/v1/messages", {"type": "any"}, "required", ["add", "none"]),
    ("/v1/messages", {"type": "tool", "name": "add"}, "required", ["add"]),
    ("/v1/messages", {"type": "tool", "name": "none"}, "required", ["none"]),
]


def asked_for(scripted: Running, path: str, **fields: Any) -> ChatRequest:
    """Return the request that a chat of a protocol makes of the model."""
    body = {"input": "Add"} if path == "/v1/responses" else {"messages": CHAT}
    response = scripted.client.post(path, json={**body, "max_tokens": 9, "stream": False, **fields})
    assert response.status_code == 200, response.text
    options = {name: value for name, value in scripted.model.asked.items() if name in TEMPLATE}
    return ChatRequest.read(CHAT, **options)


@pytest.mark.parametrize(("path", "choice", "meant", "left"), CHOICES)
def test_every_choice_of_tools(scripted, path, choice, meant, left):
    tool = {
        "/v1/chat/completions": TOOLS[0],
        "/v1/responses": {"type": "function", **FUNCTION},
        "/v1/messages": {"name": "add", "description": "Adds.", "input_schema": FUNCTION["parameters"]},
    }[path]
    other = {name: "none" if value == "add" else value for name, value in tool.items()}
    if path == "/v1/chat/completions":
        other = {"type": "function", "function": {**FUNCTION, "name": "none"}}
    request = asked_for(scripted, path, tools=[tool, other], tool_choice=choice)
    assert [each["function"]["name"] for each in request.tools] == left
    assert request.tool_choice == meant


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"reasoning_effort": "none"}),
        ("/v1/chat/completions", {"enable_thinking": False}),
        ("/v1/chat/completions", {"chat_template_kwargs": {"enable_thinking": False}}),
        ("/v1/responses", {"reasoning": {"effort": "none"}}),
        ("/v1/messages", {"thinking": {"type": "disabled"}}),
        ("/api/chat", {"think": False}),
    ],
)
def test_reasoning_is_switched_off(scripted, path, fields):
    assert asked_for(scripted, path).reasoning is None
    assert asked_for(scripted, path, **fields).reasoning is False


def test_openai(scripted):
    client = openai.OpenAI(base_url=f"{scripted.url}/v1", api_key="unused")
    options = {"model": "demo", "messages": CHAT, "tools": TOOLS, "tool_choice": "required"}
    choice = client.chat.completions.create(**options, reasoning_effort="low").choices[0]
    assert choice.finish_reason == "tool_calls"
    assert [(call.id, call.function.arguments) for call in choice.message.tool_calls] == ARGUMENTS
    assert choice.message.reasoning_content == "Let me see."
    assert scripted.model.asked.items() >= {"tool_choice": "required", "reasoning_effort": "low"}.items()
    assert scripted.model.asked["tools"] == TOOLS
    chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**options, stream=True)]
    calls = [call for chunk in chunks for call in chunk.delta.tool_calls or []]
    assert [(call.index, call.function.arguments) for call in calls] == [(0, '{"a": 1}'), (1, '{"a": 2}')]
    assert "".join(getattr(chunk.delta, "reasoning_content", "") or "" for chunk in chunks) == "Let me see."
    assert chunks[-1].finish_reason == "tool_calls"


def test_responses(scripted):
    client = openai.OpenAI(base_url=f"{scripted.url}/v1", api_key="unused")
    tools = [{"type": "function", "strict": True, **FUNCTION}]
    options = {"model": "demo", "input": "Add", "tools": tools, "tool_choice": {"type": "function", "name": "add"}}
    whole = client.responses.create(**options, reasoning={"effort": "low"})
    asked = scripted.model.asked
    assert (asked["tools"][0]["function"]["name"], asked["tool_choice"]["name"]) == ("add", "add")
    assert asked["reasoning_effort"] == "low"
    with client.responses.stream(**options) as stream:
        streamed = stream.get_final_response()
    for response in (whole, streamed):
        assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "function_call"]
        assert response.output[0].content[0].text == "Let me see."
        assert response.output_text == "I will."
        assert [(item.call_id, item.arguments) for item in response.output[2:]] == ARGUMENTS
        assert (response.status, response.usage.output_tokens_details.reasoning_tokens) == ("completed", 3)


def test_anthropic(scripted):
    client = anthropic.Anthropic(base_url=scripted.url, api_key="unused")
    tool = {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}
    options = {"model": "demo", "max_tokens": 2000, "messages": CHAT, "tools": [tool]}
    options["tool_choice"] = {"type": "tool", "name": "add"}
    options["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    answer = client.messages.create(**options)
    asked = scripted.model.asked
    assert (asked["tools"], asked["tool_choice"]) == (TOOLS, options["tool_choice"])
    assert (asked["reasoning"], asked["reasoning_budget"]) == (True, 1024)
    with client.messages.stream(**options) as stream:
        streamed = stream.get_final_message()
    for message in (answer, streamed):
        assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert message.content[0].thinking == "Let me see."
        assert [block.input for block in message.content[2:]] == [{"a": 1}, {"a": 2}]
        assert message.stop_reason == "tool_use"
        assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (15, 5)


def test_ollama(scripted):
    client = ollama.Client(host=scripted.url)
    answer = client.chat(model="demo", messages=CHAT, tools=TOOLS, think=True)
    assert answer.message.thinking == "Let me see."
    assert [call.function.arguments for call in answer.message.tool_calls] == [{"a": 1}, {"a": 2}]
    assert scripted.model.asked["tools"][0]["function"]["name"] == "add"
    assert scripted.model.asked["reasoning"] is True
    parts = list(client.chat(model="demo", messages=CHAT, tools=TOOLS, think="high", stream=True))
    calls = [call for part in parts for call in part.message.tool_calls or []]
    assert [call.function.arguments for call in calls] == [{"a": 1}, {"a": 2}]
    assert scripted.model.asked["reasoning_effort"] == "high"
    assert parts[-1].done_reason == "stop"


@pytest.fixture
def cut(scripted) -> Iterator[Running]:
    scripted.model.tell = partial(told, CUT, "length")
    yield scripted
    scripted.model.tell = told


def test_a_call_that_was_cut_is_no_whole_call_in_any_protocol(cut):
    """JSON text does not end; Anthropic's clients look at ``stop_reason``, Ollama's run every call that they get."""
    chat = {"messages": CHAT, "max_tokens": 9, "stream": False}
    body = cut.client.post("/v1/chat/completions", json=chat).json()["choices"][0]
    assert body["finish_reason"] == "length"
    assert body["message"]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1'}
    body = cut.client.post("/v1/messages", json=chat).json()
    assert (body["stop_reason"], body["content"][-1]["input"]) == ("max_tokens", {"a": 1})
    body = cut.client.post("/v1/responses", json={"input": "Add"}).json()
    call = body["output"][-1]
    assert (body["status"], call["status"], call["arguments"]) == ("incomplete", "incomplete", '{"a": 1')
    further = cut.client.post("/v1/responses", json={"input": "And?", "previous_response_id": body["id"]})
    assert further.status_code == 200
    body = cut.client.post("/api/chat", json=chat).json()
    assert (body["done_reason"], "tool_calls" in body["message"]) == ("length", False)


@pytest.mark.parametrize(
    ("path", "reason", "part"),
    [
        ("/v1/chat/completions", '"finish_reason":"length"', '"arguments":"{\\"a\\": 1"'),
        ("/v1/messages", '"stop_reason":"max_tokens"', '"partial_json":"{\\"a\\": 1"'),
        ("/v1/responses", "response.incomplete", '"delta":"{\\"a\\": 1"'),
    ],
)
def test_a_call_that_was_cut_is_streamed_as_a_partial_call(cut, path, reason, part):
    body = {"input": "Add"} if path == "/v1/responses" else {"messages": CHAT, "max_tokens": 9}
    streamed = cut.client.post(path, json={**body, "stream": True}).text
    assert reason in streamed
    assert part in streamed
