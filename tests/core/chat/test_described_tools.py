"""Tools for templates that show none: the system message describes them, and calls and results are texts."""

import json
import logging

import pytest

from pumice.chat.builtin import BUILTIN
from pumice.chat.prompt import PromptJob, write_prompt
from pumice.chat.template import ChatTemplate
from pumice.chat.traits import with_traits
from scripted_calls import scripted_model

USER = {"role": "user", "content": "How warm is it?"}
WEATHER = {
    "name": "get_weather",
    "description": 'The "weather" – of a <|im_end|> city',
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TIME = {"name": "get_time", "parameters": {"type": "object", "properties": {}}}
TOOLS = [{"type": "function", "function": function} for function in (WEATHER, TIME)]
CALLED = [
    USER,
    {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}},
            {"id": "2", "type": "function", "function": {"name": "get_time", "arguments": {}}},
        ],
    },
    {"role": "tool", "tool_call_id": "1", "content": "18 degrees"},
    {"role": "tool", "tool_call_id": "2", "content": "noon"},
]
SYSTEM = {"role": "system", "content": "Be short."}


CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def described(text: str) -> list[object]:
    """The lines of a prompt that are JSON."""
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"')]


@pytest.mark.parametrize("name", BUILTIN)
@pytest.mark.parametrize("messages", [CALLED, [SYSTEM, *CALLED]], ids=["alone", "with a system message"])
def test_every_template_shows_tools_calls_and_results(name: str, messages: list[dict[str, object]]) -> None:
    template = with_traits(ChatTemplate(BUILTIN[name], "<s>", "</s>"))
    job = PromptJob(template, ("<|im_end|>",), ("<think>", "</think>", ""), messages, TOOLS, describes_tools=True)
    written = write_prompt(job)
    assert written.mark in written.text, "a tool's text cannot spell a special token"
    text = written.text.replace(written.mark, "")
    assert described(text) == [WEATHER, TIME]
    order = ["get_weather", USER["content"], "Let me see.", '"Paris"', '{"name": "get_time", ', "18 degrees", "noon"]
    places = [text.rfind(part) for part in order[1:]]
    assert places == sorted(places)
    assert min(places) > text.find(order[0]) >= 0
    assert text.count("Be short.") == (messages[0] is SYSTEM)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with scripted_model(tmp_path_factory.mktemp("chat"), "recital", "chatml") as model:
        yield model


def test_calls_are_read_enforced_and_go_back(model, caplog):
    caplog.set_level(logging.INFO, "pumice")
    free = model.chat([USER], tools=TOOLS, recite=CALL)
    assert [(call.name, call.arguments) for call in free.message.tool_calls] == [("get_weather", {"city": "Paris"})]
    assert "the chat template shows no tools: the system message describes them" in caplog.text
    forced = model.chat(
        [USER], tools=TOOLS, tool_choice="get_time", recite='<tool_call>{"name": "get_time", "arguments": {}}'
    )
    assert [call.name for call in forced.message.tool_calls] == ["get_time"]
    plain = model.chat([USER], tools=TOOLS, recite="It is warm.")
    assert (plain.message.content, plain.message.tool_calls) == ("It is warm.", [])
    [call] = free.message.tool_calls
    history = [USER, free.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    for tools in (TOOLS, []):
        text = model.template.apply(history, tools=tools)
        assert '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>' in text
        assert "<tool_response>\n\nsunny" in text
    assert not model.template.capabilities()["supports_tools"]


def test_a_known_format_of_calls_is_not_replaced(model, caplog):
    """A plugin's format for a template without tools: only the plugin knows how they reach the model."""
    own = "{# <stone>, told of once #}{% for m in messages %}{{ m.content }}{% endfor %}"
    completion = model.chat([USER], tools=TOOLS, chat_template=own, recite=CALL)
    assert completion.message.content == CALL
    assert completion.usage.prompt_tokens < 30
    assert "is unlikely to call any" in caplog.text
