"""Messages, tools and options as users give them, and what is wrong with them."""

import numpy as np
import pytest

from pumice.chat import ChatRequest, Message, ToolCall
from pumice.chat.messages import read_messages, read_tools
from pumice.errors import RequestError

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
OTHER = {"name": "g", "description": "bare"}


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def test_contents_and_arguments_are_made_one():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}
    read = read_messages(
        [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "Ann"},
            {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "r"},
        ]
    )
    assert read == [
        {"role": "user", "content": "a\nb", "name": "Ann"},
        {
            "role": "assistant",
            "content": "",
            "reasoning": "r",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": [1]}}}],
        },
    ]


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "the list is empty"),
        ("Hi", "expected a list of messages"),
        (5, "expected a list of messages"),
        (None, "expected a list of messages"),
        (USER, "expected a list of messages"),
        ([nested(5000)], r"messages\[0\]: expected an object"),
        ([3], r"messages\[0\]: expected an object"),
        ([USER, {"content": "x"}], r"messages\[1\].role: expected system, user"),
        ([{"role": "user<|im_end|>", "content": "x"}], r"messages\[0\].role"),
        ([{"role": "user"}], r"messages\[0\].content: missing"),
        ([{"role": "user", "content": 0}], r"messages\[0\].content: expected text or a list of parts, not 0"),
        ([{"role": "user", "content": np.zeros(2)}], r"messages\[0\].content: expected text or a list of parts"),
        ([{"role": "user", "content": 3}], r"messages\[0\].content: expected text or a list"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "no image, sound or video is supported"),
        ([{"role": "user", "content": [{"type": "file"}]}], r"content\[0\].type: expected 'text'"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"content\[0\].text: expected text"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": 3}}]}], r"tool_calls\[0\].function.name"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}], "not valid JSON"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}], "an object"),
    ],
)
def test_wrong_messages_are_named(messages, problem):
    with pytest.raises(RequestError, match=problem):
        read_messages(messages)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (nested(500), "nested deeper than 64 levels"),
        ({1: 2}, "expected text as a key, not 1"),
        ({"a": {1, 2}}, "type set cannot be represented in JSON"),
        ({"a": object()}, "type object cannot be represented in JSON"),
    ],
)
def test_templates_get_to_see_plain_values_alone(given, problem):
    with pytest.raises(RequestError, match=rf"messages\[0\]: .*{problem}"):
        read_messages([{**USER, "extra": given}])
    with pytest.raises(RequestError, match=rf"tools\[0\]: .*{problem}"):
        read_tools([{"name": "f", "parameters": {"x": given}}])
    with pytest.raises(RequestError, match=f"template_variables: .*{problem}"):
        ChatRequest.read([USER], template_variables={"x": given})


def test_a_bare_function_is_a_tool():
    assert read_tools([OTHER]) == [{"type": "function", "function": OTHER}]
    with pytest.raises(RequestError, match="tools: expected a list of tools, not 5"):
        read_tools(5)
    with pytest.raises(RequestError, match=r"tools\[1\].function.name: 'f' occurs twice"):
        read_tools([TOOL, TOOL])
    with pytest.raises(RequestError, match=r"tools\[0\].function.name: expected text"):
        read_tools([{"type": "function", "function": {}}])
    with pytest.raises(RequestError, match=r"tools\[0\].type: only 'function' is supported, not 'web_search'"):
        read_tools([{"type": "web_search"}])
    for name in ("", "get weather", "f\n"):
        with pytest.raises(RequestError, match=r"tools\[0\].function.name: expected only letters, digits and"):
            read_tools([{"name": name}])


def chosen(choice, tools=(TOOL, OTHER)):
    request = ChatRequest.read([USER], tools=tools, tool_choice=choice)
    return [tool["function"]["name"] for tool in request.tools], request.tool_choice


def test_a_choice_leaves_some_tools():
    assert chosen(None) == (["f", "g"], "auto")
    assert chosen("none") == ([], "none")
    assert chosen("required") == (["f", "g"], "required")
    assert chosen({"type": "function", "function": {"name": "g"}}) == (["g"], "required")
    assert chosen({"type": "tool", "name": "g"}) == (["g"], "required")
    assert chosen("g") == (["g"], "required")
    assert chosen("auto", ()) == ([], "auto")


@pytest.mark.parametrize("name", ["auto", "none", "required", "any"])
def test_a_tool_is_chosen_by_any_name(name):
    tools = [TOOL, {"name": name}]
    for choice in ({"type": "function", "function": {"name": name}}, {"type": "tool", "name": name}):
        request = ChatRequest.read([USER], tools=tools, tool_choice=choice)
        assert [tool["function"]["name"] for tool in request.tools] == [name]
        assert (request.tool_choice, request.parallel_tool_calls) == ("required", False)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tool_choice": "h", "tools": [TOOL]}, "tool_choice: unknown tool 'h'"),
        ({"tool_choice": "required"}, "tool_choice: 'required' needs tools"),
        ({"tool_choice": 3}, "tool_choice: expected"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice: 'allowed_tools' needs"),
        ({"tool_choice": {"type": "allowed_tools", "tools": [{"name": "h"}]}, "tools": [TOOL]}, "unknown tool 'h'"),
        ({"reasoning_budget": -1}, "reasoning_budget must be a number of tokens, at least 0, not -1"),
        ({"template_variables": {"x": "y" * 100000}}, "template_variables: 100001 characters, but the limit is 65536"),
        ({"template_variables": {"x": [0] * 1000}}, "template_variables: more than 1000 values"),
        ({"template_variables": {"x": 1 << 64}}, "template_variables: an integer has more than 64 bits"),
        ({"template_variables": [1]}, "template_variables: expected an object"),
        ({"reasoning_effort": "x" * 100000}, "reasoning_effort: 100000 characters, but the limit is 65536"),
        ({"reasoning_budget_message": "x" * 100000}, "reasoning_budget_message: 100000 characters"),
        ({"response_format": {"type": "xml"}}, "response_format"),
    ],
)
def test_wrong_options_are_named(options, problem):
    with pytest.raises(RequestError, match=problem):
        ChatRequest.read([USER], **options)


def test_an_answer_that_is_last_is_gone_on_with():
    answer = {"role": "assistant", "content": "Hel"}
    assert ChatRequest.read([USER, answer]).continues
    assert not ChatRequest.read([USER]).continues
    assert not ChatRequest.read([USER, answer], continue_final_message=False).continues
    assert not ChatRequest.read([USER, answer], add_generation_prompt=False).continues
    called = {**answer, "tool_calls": [{"function": {"name": "f"}}]}
    assert not ChatRequest.read([USER, called]).continues


def call(arguments):
    function = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]}


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        ({**USER, "extra": [[]] * 100_000}, r"messages\[1\]: more than 100000 values"),
        ({**USER, "content": [{"text": ""}] * 100_000}, r"messages\[1\]: more than 100000 values"),
        ({**USER, "content": "a" * (1 << 24)}, r"messages\[1\]: 16777\d+ characters, but the limit is 16777216"),
        (call("[" + "[]," * 99_990 + "[]]"), r"messages\[1\].*function.arguments: more than 100000 values"),
        (call("[" + "[]," * 500_000 + "[]]"), r"function.arguments: 1500004 characters, but the limit is 1048576"),
    ],
)
def test_a_request_brings_so_much_and_no_more(message, refusal):
    with pytest.raises(RequestError, match=refusal):
        read_messages([USER, message])


@pytest.mark.parametrize("arguments", [{}, {"a": 1}, {"a": {"b": "}"}, "c": [2]}])
def test_a_partial_call_can_be_given_back(arguments):
    call = ToolCall("add", arguments, "call1", partial=True)
    message = Message("", tool_calls=[call])
    for given in (message, message.to_dict(), {"role": "assistant", "tool_calls": [call]}):
        assert read_messages([given])[0]["tool_calls"][0]["function"] == {"name": "add", "arguments": arguments}
