"""Infer the chat format of an unknown template by rendering chats that differ in one detail.

The text that a template writes around a name, an argument or reasoning are the marks that the model was trained on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pumice.chat.calls import Keys
from pumice.chat.families import GENERIC
from pumice.chat.formats import ChatFormat
from pumice.chat.template import ChatTemplate
from pumice.chat.traits import attempt

# Strings that no template contains, none of them part of another.
_USER, _CONTENT, _REASONING = "USERTEXT", "CONTENTTEXT", "REASONINGTEXT"
_NAMES, _KEYS, _VALUES = ("first_name", "second_name"), ("first_key", "second_key"), ("firstvalue", "secondvalue")
_IDS = ("123456701", "123456702")


def probe(template: ChatTemplate) -> ChatFormat:
    """Return the chat format, as far as the template shows it."""
    reasoning = _reasoning(template) or GENERIC.reasoning
    one, two = _written(template, n_calls=1), _written(template, n_calls=2)
    tools = (
        _json_calls(one, two) or _named_calls(one, two) or _tagged_calls(_written(template, n_arguments=2), one, two)
    )
    if tools is None:
        return ChatFormat(reasoning=reasoning, calls=GENERIC.calls)
    return ChatFormat(
        reasoning=reasoning, calls=(tools.call,), param=tools.param, section=tools.section, keys=tools.keys
    )


@dataclass(frozen=True)
class _Tools:
    call: str
    param: str = ""
    section: tuple[str, str] = ("", "")
    keys: Keys = field(default_factory=Keys)


def _reasoning(template: ChatTemplate) -> tuple[str, str] | None:
    """Return the marks around reasoning, if the template renders it; else None."""
    plain = _render(template, [_answer(content=_CONTENT)])
    text = _render(template, [_answer(content=_CONTENT, reasoning=_REASONING)])
    before, is_rendered, after = text.partition(_REASONING)
    end, has_content, _ = after.partition(_CONTENT)
    start = before[_shared(before, plain) :].strip()
    return (start, end.strip()) if is_rendered and has_content and start and end.strip() else None


def _written(template: ChatTemplate, n_calls: int = 1, n_arguments: int = 1) -> str:
    """Return the text that a template renders for calls alone, without the end of the turn."""
    arguments = dict(zip(_KEYS[:n_arguments], _VALUES, strict=False))
    calls = [
        {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}
        for identifier, name in zip(_IDS[:n_calls], _NAMES, strict=False)
    ]
    text = _render(template, [{**_answer(), "tool_calls": calls}])
    plain = _render(template, [_answer(content=_CONTENT)])
    before, _, end = plain.partition(_CONTENT)
    return text[_shared(text, before) :].removesuffix(end)


def _json_calls(one: str, two: str) -> _Tools | None:
    """Return the format of calls that are JSON objects or an array of them; else None."""
    location = _find_json(one, lambda value: _NAMES[0] in json.dumps(value))
    if location is None:
        return None
    start, end, value = location
    keys = _keys(value[0] if isinstance(value, list) and value else value)
    if keys is None:
        return None
    if isinstance(value, list):
        return _Tools(one[:start] + "{json}" + one[end:], keys=keys)
    second = _find_json(two, lambda value: _NAMES[1] in json.dumps(value))
    if second is None:
        return _Tools(one[:start] + "{json}" + one[end:], keys=keys)
    opening, closing, section = _parts(one[:start], one[end:], two[end : second[0]])
    return _Tools(opening + "{json}" + closing, section=section, keys=keys)


def _named_calls(one: str, two: str) -> _Tools | None:
    """Return the format of calls with a name, optionally an id, and a JSON object; else None."""
    location = _find_json(one, lambda value: value == {_KEYS[0]: _VALUES[0]})
    if location is None or _NAMES[0] not in one[: location[0]]:
        return None
    start, end, _ = location
    second = _find_json(two[end:], lambda value: value == {_KEYS[0]: _VALUES[0]})
    section = ("", "")
    head, closing = one[:start], one[end:]
    if second is not None:
        first = min(head.find(text) for text in (_NAMES[0], _IDS[0]) if text in head)
        between = two[end : end + second[0]]
        begun = min((between.find(text) for text in (_NAMES[1], _IDS[1]) if text in between), default=0)
        opening, closing, section = _parts(one[:first], closing, between[:begun])
        head = opening + one[first:start]
    head = head.replace(_NAMES[0], "{name}").replace(_IDS[0], "{id}")
    return _Tools(head + "{arguments}" + closing, section=section)


def _tagged_calls(arguments: str, one: str, two: str) -> _Tools | None:
    """Return the format of calls with single arguments; ``arguments`` is a rendered call with two of them."""
    texts = [_NAMES[0], *(text for pair in zip(_KEYS, _VALUES, strict=True) for text in pair)]
    positions = [arguments.find(text) for text in texts]
    if min(positions) < 0 or positions != sorted(positions):
        return None
    key, value, key2, value2 = positions[1:]
    between = arguments[value + len(_VALUES[0]) : key2]
    opening = _trimmed(between[_common(between[::-1], arguments[:key][::-1]) * -1 :])
    if not opening:
        return None
    closing = between.removesuffix(opening)
    param = opening + "{key}" + arguments[key + len(_KEYS[0]) : value] + "{value}" + closing
    end = value2 + len(_VALUES[1])
    tail = arguments[end:].removeprefix(closing)
    begin = arguments[:key].removesuffix(opening)
    name, after = arguments.find(_NAMES[0]), arguments.find(_NAMES[0]) + len(_NAMES[0])
    stop, second = two.find(_VALUES[0]) + len(_VALUES[0] + closing), two.find(_NAMES[1])
    head, end_of_call, section = (
        _parts(one[:name], tail, two[stop:second]) if second > 0 else (begin[:name], tail, ("", ""))
    )
    return _Tools(head + "{name}" + begin[after:] + "{params}" + end_of_call, param, section)


def _parts(before: str, after: str, between: str) -> tuple[str, str, tuple[str, str]]:
    """Return the opening and closing of a call, and the section around all calls.

    Args:
        before: text before a single call.
        after: text after a single call.
        between: text between two calls.
    """
    closing = between[: _shared(between, after)]
    rest = between[len(closing) :]
    opening = _trimmed(rest[len(rest) - _common(rest[::-1], before[::-1]) :])
    return opening, closing, (before.removesuffix(opening).strip(), after.removeprefix(closing).strip())


def _trimmed(opening: str) -> str:
    """Remove the rest of an earlier tag: ``">\\n<parameter="`` begins with ``<``."""
    start = opening.find("<")
    return opening[start:] if start >= 0 else opening.lstrip()


def _keys(call: Any) -> Keys | None:
    """Return the keys that a JSON call uses for name, arguments and id; None if it lacks name or arguments."""
    if not isinstance(call, dict):
        return None
    if list(call) == [_NAMES[0]]:
        return Keys(name="", arguments="")
    function = call.get("function")
    call = {**call, **function} if isinstance(function, dict) else call
    names = [key for key, value in call.items() if value == _NAMES[0]]
    arguments = [key for key, value in call.items() if value == {_KEYS[0]: _VALUES[0]}]
    ids = [key for key, value in call.items() if value == _IDS[0]]
    return Keys(names[0], arguments[0], (ids or ["id"])[0]) if names and arguments else None


def _find_json(text: str, is_call: Any) -> tuple[int, int, Any] | None:
    """Return start, end and value of the first JSON object or array for which ``is_call`` is true."""
    decoder = json.JSONDecoder()
    for start, char in enumerate(text):
        if char in "{[":
            try:
                value, end = decoder.raw_decode(text, start)
            except ValueError:
                continue
            if is_call(value):
                return start, end, value
    return None


def _render(template: ChatTemplate, answers: list[dict[str, Any]]) -> str:
    """Render a chat that ends with ``answers``; empty if the template refuses it."""
    return attempt(template, [{"role": "user", "content": _USER}, *answers], _TOOLS, add_generation_prompt=False)


def _answer(**values: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", **values}


def _tool(name: str) -> Mapping[str, Any]:
    properties = {key: {"type": "string", "description": key} for key in _KEYS}
    parameters = {"type": "object", "properties": properties, "required": list(_KEYS)}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


_TOOLS = [_tool(name) for name in _NAMES]


def _shared(left: str, right: str) -> int:
    """Return the length of the common prefix, without an incomplete tag at its end."""
    end = _common(left, right)
    start = max(left.rfind("<", 0, end), left.rfind("[", 0, end))
    return start if start >= 0 and not {">", "]"}.intersection(left[start:end]) else end


def _common(left: str, right: str) -> int:
    """Return the length of the common prefix."""
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))
