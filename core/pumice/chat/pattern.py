"""Patterns of tool calls: the syntax of a call as text with fields, matched against streamed text.

A pattern consists of literals and fields, as in ``<tool_call>{name}{params}</tool_call>``; white space between them is
ignored. The fields:

    {json}         a call as a JSON object with a name and arguments, or an array of calls
    {name} {id}    the tool's name, and an id of the call: letters, digits, ``_ - . / :``
    {arguments}    the arguments as a JSON object
    {params}       the arguments one by one, each in the syntax of the pattern ``param``
    {python}       a Python list of calls: ``[f(a=1), g()]``
    {braces}       the arguments in Gemma's syntax: ``{city:<escape>Paris<escape>,days:3}``
    {key} {value} {type}   in ``param``: an argument's name, value, and type: text ("string", "true") or JSON
    {xml}          like {value}, but ``<![CDATA[...]]>`` stands for its content

If a second ``{key}`` closes an argument, as in ``<{key}>{value}</{key}>``, a value may consist of such arguments: they
are an object, or a list if all of them are named ``item``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pumice.chat.calls import Keys, WrittenCall, as_json, braces_to_json, json_call, name_of_id, python_calls
from pumice.chat.incoming import IncomingText, Reading, literal, read_brackets, read_name, read_until, skip_space

_FIELD = re.compile(r"\{(json|name|id|arguments|params|python|braces|key|value|xml|type)\}")
_WORD = re.compile(r"\s+|(?<=>)(?=<)")  # white space is allowed between tags, too
_TAG = re.compile(r"<[^<>]+>|\[[^\[\]]+\]")
_NAME = re.compile(r"[\w.\-/:]*")
_KEY = re.compile(r"[\w.\-]*")
_JSON_MARK = re.compile(r'["{}\[\]]')
_PYTHON_MARK = re.compile(r"""["'\[\](){}\\]""")
CDATA = "<![CDATA[", "]]>"
ITEM = "item"  # the key of every value of a list
_MAX_DEPTH = 32  # levels of arguments within arguments
_MAX_PYTHON = 1 << 16  # characters of a list of calls, which Python's own parser reads


@dataclass(frozen=True)
class Pattern:
    """The pattern of a call.

    Attributes:
        text: literals and fields of the call.
        param: pattern of one argument, for ``{params}``.
        keys: names of the parts of a JSON call.
    """

    text: str
    param: str = ""
    keys: Keys = field(default_factory=Keys)

    @cached_property
    def elements(self) -> list[tuple[str, str]]:
        """``("literal", word)`` and ``("field", name)`` of the call, in order."""
        return _elements(self.text)

    @cached_property
    def param_elements(self) -> list[tuple[str, str]]:
        return _elements(self.param)

    @property
    def opening(self) -> str:
        """The literal with which the pattern begins; empty if it begins with a field."""
        kind, text = self.elements[0]
        return text if kind == "literal" else ""

    def heads(self, others: Sequence[str]) -> list[str]:
        """Return texts that begin a call: its first tag, or, if one of ``others`` has it, all before a field."""
        before = self.text.partition("{")[0].strip()
        tag = _TAG.match(before)
        if tag and not any(other.startswith(tag[0]) for other in others):
            return [tag[0]]
        if before.isalpha():  # an ordinary word, which only the JSON after it makes a mark
            return [before + bracket for bracket in "[{"]
        return [before] if "<" in before else [before, "".join(before.split())]

    def problem(self) -> str:
        """Return what is wrong with the pattern in one line; empty if it is valid."""
        fields = {name for kind, name in self.elements if kind == "field"}
        if not fields & {"json", "python"} and not (
            fields & {"name", "id"} and fields & {"arguments", "params", "braces"}
        ):
            return f"the pattern {self.text!r} needs a field for a call, or fields for its name and arguments"
        if "params" in fields:
            param = [name for kind, name in self.param_elements if kind == "field"]
            whole = "key" in param and {"value", "xml"}.intersection(param)
            if not whole or self.param_elements[0][0] != "literal":
                return f"the argument's pattern {self.param!r} must begin with a mark and have {{key}} and {{value}}"
        return ""

    def read(self, source: IncomingText, start: int) -> Reading[tuple[list[WrittenCall], int] | None]:
        """Return the calls at ``start`` and the position after them; None without a match."""
        fields: dict[str, Any] = {}
        position: int | None = start
        for i, (kind, text) in enumerate(self.elements):
            assert position is not None
            if kind == "literal":
                position = yield from literal(source, position, text)
            elif text == "params":
                position = yield from self.read_params(source, position, fields)
            else:
                after = self.elements[i + 1][1] if i + 1 < len(self.elements) else ""
                position = yield from read_field(source, position, text, after, fields)
            if position is None:
                return None
        calls = self.calls(fields)
        return (calls, position) if calls and position is not None else None

    def read_params(self, source: IncomingText, position: int, fields: dict[str, Any]) -> Reading[int]:
        """Read arguments into ``fields``, with the names of those that may be text or JSON.

        Return the position after.
        """
        fields["arguments"], fields["texts"] = {}, set()
        while True:
            argument: dict[str, Any] = {}
            end = yield from self._read_param(source, position, argument)
            if end is None:
                return position
            position = end
            _take_argument(argument, fields)

    def _read_param(
        self, source: IncomingText, position: int | None, argument: dict[str, Any], depth: int = 0
    ) -> Reading[int | None]:
        for i, (kind, text) in enumerate(self.param_elements):
            assert position is not None
            if kind == "literal":
                position = yield from literal(source, position, text)
            elif text in argument:  # a second {key}, as in </{key}>, closes the first
                position = yield from literal(source, position, argument[text])
            else:
                after = self.param_elements[i + 1][1] if i + 1 < len(self.param_elements) else ""
                if text == "value" and self.nests and (yield from self._begins_another(source, position, after)):
                    position = yield from self._read_nested(source, position, after, argument, depth + 1)
                else:
                    position = yield from read_field(source, position, text, after, argument)
            if position is None:
                return None
        return position

    @cached_property
    def nests(self) -> bool:
        return self.param_elements.count(("field", "key")) > 1

    def _begins_another(self, source: IncomingText, position: int, after: str) -> Reading[bool]:
        """Return True if a value consists of arguments rather than of text or nothing."""
        if (yield from literal(source, position, after)) is not None:
            return False
        return (yield from literal(source, position, self.param_elements[0][1])) is not None

    def _read_nested(
        self, source: IncomingText, position: int, after: str, argument: dict[str, Any], depth: int
    ) -> Reading[int | None]:
        parts: list[tuple[str, Any]] = []
        while (yield from literal(source, position, after)) is None:
            part: dict[str, Any] = {}
            end = (yield from self._read_param(source, position, part, depth)) if depth < _MAX_DEPTH else None
            if end is None:
                return None
            parts.append((part["key"], part["value"]))
            position = end
        argument["value"] = [value for _, value in parts] if all(key == ITEM for key, _ in parts) else dict(parts)
        return position

    def calls(self, fields: dict[str, Any]) -> list[WrittenCall]:
        """Return the calls that the fields describe; empty if a field is invalid."""
        if "json" in fields:
            values = fields["json"] if isinstance(fields["json"], list) else [fields["json"]]
            calls = [json_call(value, self.keys, may_lack_arguments=bool(self.opening)) for value in values]
        elif "python" in fields:
            calls = fields["python"]
        else:
            name, arguments = fields.get("name"), fields.get("arguments")
            name = name or name_of_id(fields.get("id", ""))
            texts = frozenset(fields.get("texts", ()))
            calls = (
                [WrittenCall(name, arguments, fields.get("id", ""), texts)] if isinstance(arguments, dict) else [None]
            )
        named = [call for call in calls if call is not None and call.name]
        return named if len(named) == len(calls) else []


def is_name(text: str) -> bool:
    """Return True if ``text`` is a valid name of a tool."""
    return bool(text) and _NAME.fullmatch(text) is not None


def _elements(pattern: str) -> list[tuple[str, str]]:
    elements = []
    for i, part in enumerate(_FIELD.split(pattern)):
        if i % 2:
            elements.append(("field", part))
        else:
            elements += [("literal", word) for word in _WORD.split(part) if word]
    return elements


def read_field(
    source: IncomingText, position: int, name: str, after: str, fields: dict[str, Any]
) -> Reading[int | None]:
    """Read one field into ``fields``; ``after`` is the literal that follows. Return the position after it, or None."""
    end: int | None
    if name in ("name", "id", "key", "type"):
        end = yield from read_name(source, position, _KEY if name == "key" else _NAME)
        fields[name] = source.text[position:end].strip()
        return end if fields[name] else None
    if name == "xml" and (inside := (yield from literal(source, position, CDATA[0]))) is not None:
        fields["value"], end = yield from read_until(source, inside, CDATA[1], exactly=True)
        return end if end is None else end + len(CDATA[1])
    if name in ("value", "xml"):
        fields["value"], end = yield from read_until(source, position, after)
        return end
    if name == "braces":
        text, end = yield from read_until(source, position, after)
        read = as_json(text)
        fields["arguments"] = as_json(braces_to_json(text)) if isinstance(read, str) else read
        return end
    read = _read_python if name == "python" else _read_json
    fields[name], end = yield from read(source, position)
    return end


def _read_json(source: IncomingText, position: int) -> Reading[tuple[Any, int | None]]:
    """Return a JSON object or array, and the position after it; None and None without one."""
    start = yield from skip_space(source, position)
    if source.text[start : start + 1] not in ("{", "["):
        return None, None
    end = yield from read_brackets(source, start, _JSON_MARK, '"')
    if end is None:
        return None, None
    try:
        return json.loads(source.text[start:end], strict=False), end
    except (ValueError, RecursionError):
        return None, None


def _read_python(source: IncomingText, position: int) -> Reading[tuple[list[WrittenCall] | None, int | None]]:
    """Return a Python list of calls with constant keyword arguments, and the position after it; else None and None."""
    start = yield from skip_space(source, position)
    if source.text[start : start + 1] != "[":
        return None, None
    end = yield from read_brackets(source, start, _PYTHON_MARK, "\"'")
    if end is None or end - start > _MAX_PYTHON:
        return None, None
    calls = python_calls(source.text[start:end])
    return (None, None) if calls is None else (calls, end)


def _take_argument(argument: Mapping[str, Any], fields: dict[str, Any]) -> None:
    key, value, kind = argument["key"], argument["value"], argument.get("type")
    if kind is None:
        fields["texts"].add(key)
    elif kind not in ("string", "true"):
        value = as_json(value)
    fields["arguments"][key] = value
