"""Answers taken apart: families' calls and reasoning, odd output as text, and the same however the text is cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_answers import ANSWERS, CALL
from family_templates import FAMILIES
from pumice.chat import FORMATS
from pumice.chat.formats import ChatFormat, detect
from pumice.chat.messages import read_messages, read_tools
from pumice.chat.parser import ChatParser
from pumice.chat.probe import probe
from pumice.chat.template import ChatTemplate
from pumice.chat.traits import with_traits
from waiting import seconds_of

PROPERTIES = {"city": {"type": "string", "description": "A city"}, "days": {"type": "integer", "description": "Days"}}
TOOLS = read_tools([{"name": "get_weather", "parameters": {"type": "object", "properties": PROPERTIES}}])
ARGUMENTS = [{"city": "12", "days": 3}, {"city": 'Paris "x" </b>', "days": 4}]


def parse(format: ChatFormat, *chunks: str, opening: str = "", tools=TOOLS) -> list[tuple]:
    """The parts of an answer, neighbouring texts joined; a call is ``("call", name, arguments)``."""
    parser = ChatParser(format, tools, opening)
    parts = [part for chunk in chunks for part in parser.push(chunk)] + parser.finish()
    joined: list[tuple] = []
    for kind, value in parts:
        if kind == "call":
            joined.append((kind, value.name, value.arguments))
        elif joined and joined[-1][0] == kind:
            joined[-1] = (kind, joined[-1][1] + value)
        else:
            joined.append((kind, value))
    return joined


def written(template: ChatTemplate, n_calls: int, content: str) -> tuple[str, str]:
    """The prompt's end and the answer that a template writes for calls."""
    calls = [
        {"id": f"12345670{i}", "function": {"name": "get_weather", "arguments": ARGUMENTS[i]}} for i in range(n_calls)
    ]
    user = {"role": "user", "content": "Hi"}
    chat = read_messages([user, {"role": "assistant", "content": content, "tool_calls": calls}])
    prompt = template.render(chat[:1], TOOLS)
    text = template.render(chat, TOOLS, add_generation_prompt=False)
    assert text.startswith(prompt)
    return prompt, text[len(prompt) :].removesuffix("<|im_end|>\n")


@pytest.mark.parametrize("n_calls", [1, 2])
@pytest.mark.parametrize("name", FAMILIES)
def test_answers_rendered_by_templates_are_parsed(name, n_calls):
    template = with_traits(ChatTemplate(FAMILIES[name]))
    assert detect(template.source, FORMATS.values()) is FORMATS[name]
    _, text = written(template, n_calls, "Let me look.")
    calls = [("call", "get_weather", arguments) for arguments in ARGUMENTS[:n_calls]]
    assert parse(FORMATS[name], text) == [("content", "Let me look."), *calls]


PROBED = set(FAMILIES) - {"lfm2.5", "functiongemma", "command-r7b", "kimi-k2"}  # no JSON and no tags, or odd ids


@pytest.mark.parametrize("name", sorted(PROBED))
def test_the_format_of_an_unknown_template_is_found_by_probing(name):
    template = with_traits(ChatTemplate(FAMILIES[name]))
    found = probe(template)
    _, text = written(template, 2, "Let me look.")
    assert found.problem() == ""
    calls = [("call", "get_weather", arguments) for arguments in ARGUMENTS]
    assert parse(found, text) == [("content", "Let me look."), *calls]


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_taken_apart(name):
    format, opening, text, parts = ANSWERS[name]
    assert parse(FORMATS[format], text, opening=opening) == parts


@given(name=st.sampled_from(sorted(ANSWERS)), data=st.data())
def test_cuts_change_nothing(name, data):
    format, opening, text, parts = ANSWERS[name]
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1)))))
    chunks = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert parse(FORMATS[format], *chunks, opening=opening) == parts


PIECES = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", CALL, CALL[:20], "<function=f>", "<parameter=a>",
    "</parameter>", "</function>", "[TOOL_CALLS]", "[ARGS]", "{", "}", "[", "]", '"', "\\", "'", "<", " ", "\n", "f",
    "é",
    "<|channel|>", "analysis", "<|message|>", "<|end|>", ">>>", "all\n", "<arg_key>", "</arg_key>",
]  # fmt: skip


@given(name=st.sampled_from(sorted(FORMATS)), pieces=st.lists(st.sampled_from(PIECES), max_size=12), data=st.data())
def test_odd_answers_are_text_and_cuts_change_nothing(name, pieces, data):
    text = "".join(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    chunks = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert parse(FORMATS[name], *chunks) == parse(FORMATS[name], text)


def test_a_long_call_is_read_in_linear_time():
    parser = ChatParser(FORMATS["hermes"], TOOLS)
    value = "x" * 300_000
    text = f'<tool_call>{{"name": "f", "arguments": {{"a": {json.dumps(value)}}}}}</tool_call>'
    parts = [part for start in range(0, len(text), 50) for part in parser.push(text[start : start + 50])]
    assert parts[0][1].arguments == {"a": value}


@pytest.mark.parametrize(
    ("format", "begin", "unit"),
    [
        ("functionary-v3.2", "", ">>>f\n{"),
        ("hermes", "", "<tool_call>{"),
        ("hermes", "<think>", f"<tool_call>{CALL}</tool_call>"),
        ("qwen3-coder", "", "<tool_call><function=f><parameter=a>"),
    ],
)
def test_calls_that_are_none_are_read_in_linear_time(format, begin, unit):
    text = begin + unit * 5000
    assert seconds_of(lambda: parse(FORMATS[format], text), 10.0) < 10.0


@pytest.mark.parametrize(
    ("format", "problem"),
    [
        (ChatFormat(reasoning=("<a>", "")), "both a start mark and an end mark"),
        (ChatFormat(calls=("<call>",)), "needs a field for a call"),
        (ChatFormat(marks="<call>"), "marks: expected a tuple of texts"),
        (ChatFormat(marks=("",)), "marks: expected a tuple of texts"),
        (ChatFormat(reasoning=("<think>",)), "give both a start mark and an end mark"),
        (ChatFormat(calls=("<call>{name}{params}</call>",)), "the argument's pattern"),
        (ChatFormat(calls=("<call>{name}{params}</call>",), param="{key}: {value}"), "begin with a mark"),
    ],
)
def test_formats_that_cannot_be(format, problem):
    assert problem in format.problem()


@pytest.mark.parametrize("name", FORMATS)
def test_formats_that_come_with_pumice_have_no_problem(name):
    assert FORMATS[name].problem() == ""


@pytest.mark.parametrize("has_form", [True, False])
def test_the_mark_of_a_call_is_text_in_what_a_grammar_determines(has_form):
    text = json.dumps({"a": 'x<tool_call>{"name": "add", "arguments": {}}</tool_call>'}).replace('\\"', '"')
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    parser = ChatParser(FORMATS["hermes"], tools, has_form=has_form)
    parts = [part for letter in text for part in parser.push(letter)] + parser.finish()
    assert [part for kind, part in parts if kind == "call"] == [] or not has_form
    assert has_form == ("".join(part for kind, part in parts if kind == "content") == text)
