"""Calls in which an answer is cut: partial calls with the arguments that are complete, wherever the cut is."""

import json

import pytest

from chat_answers import CALL
from pumice.chat.cut import complete_part
from pumice.chat.families import FORMATS
from pumice.chat.parser import ChatParser

NAME, ARGUMENTS = "get_weather", {"city": "12", "days": 3}
PARAMETERS = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": NAME, "parameters": PARAMETERS}}]
WRITTEN = {
    "hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "mistral": f"[TOOL_CALLS] [{CALL}]",
    "llama3": CALL.replace("arguments", "parameters"),
    "llama4": "[get_weather(city='12', days=3)]",
    "qwen3-coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n"
    "</parameter>\n</function>\n</tool_call>",
    "glm": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>12</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>3</arg_value>\n</tool_call>",
    "harmony": "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    '{"city": "12", "days": 3}<|call|>',
    "functiongemma": "<start_function_call>call:get_weather{city:<escape>12<escape>,days:3}<end_function_call>",
    "kimi-k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    '{"city": "12", "days": 3}<|tool_call_end|><|tool_calls_section_end|>',
}


def parts_of(format, text, cut=True):
    parser = ChatParser(FORMATS[format], TOOLS)
    return [*parser.push(text), *parser.finish(cut=cut)]


@pytest.mark.parametrize("format", WRITTEN)
def test_a_call_is_partial_wherever_it_is_cut(format):
    text = WRITTEN[format]
    name_ends = text.index(NAME) + len(NAME) + 3
    seen = set()
    for end in range(name_ends, len(text) + 1):
        parts = parts_of(format, text[:end])
        assert [kind for kind, _ in parts[:1]] == ["call"], text[:end]
        assert text[:end].endswith("".join(part for _, part in parts[1:]))  # the beginning of a mark
        call = parts[0][1]
        assert call.name == NAME
        assert call.arguments.items() <= ARGUMENTS.items(), text[:end]
        seen.add((call.partial, len(call.arguments)))
    assert (False, 2) in seen
    assert (True, 1) in seen
    assert not [partial for partial, n in seen if not partial and n < 2]


@pytest.mark.parametrize("format", ["hermes", "mistral", "qwen3-coder", "kimi-k2"])
def test_a_call_without_its_whole_name_is_left_out(format):
    text = WRITTEN[format]
    for end in range(text.index(NAME), text.index(NAME) + len(NAME)):
        assert parts_of(format, "Hm. " + text[:end]) == [("content", "Hm.")], text[:end]


def test_the_complete_part_of_json():
    text = '{"a": [1, {"b": "x\\"y,"}, -2.5e3], "c": {"d": null, "e": true}, "f": "g"}'
    for end in range(1, len(text) + 1):
        value, n_open = complete_part(text[:end])
        assert isinstance(value, dict)
        assert (n_open == 0) == (end == len(text))
    assert value == json.loads(text)
    assert complete_part('{"a": "x')[0] == {}
    assert complete_part('["x", "y')[0] == ["x"]
    assert complete_part("") == (None, 0)


@pytest.mark.parametrize("format", ["hermes", "mistral", "qwen3-coder", "kimi-k2"])
def test_the_beginning_of_a_mark_is_dropped_from_a_cut_answer(format):
    for end in range(1, 8):
        begun = WRITTEN[format][:end]
        assert parts_of(format, f"Hm. {begun}") == [("content", "Hm.")], begun
        assert "".join(text for _, text in parts_of(format, f"Hm. {begun}", cut=False)) == f"Hm. {begun}"
    start, close = FORMATS[format].reasoning
    for end in range(1, len(close)):
        assert parts_of(format, f"{start}Hm. {close[:end]}") == [("reasoning", "Hm.")], end
        whole = parts_of(format, f"{start}Hm. {close[:end]}", cut=False)
        assert "".join(text for _, text in whole) == f"Hm. {close[:end]}"
