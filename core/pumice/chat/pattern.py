"""Patterns of tool calls: how a model writes a call, as text with fields, read from text that is still coming.

A pattern is literals and fields, as in ``<tool_call>{name}{params}</tool_call>``; between two of them white space does
not matter. The fields:

    {json}         a call as a JSON object with a name and arguments, or an array of them
    {name} {id}    the tool's name, an id of the call: letters, digits, ``_ - . / :``
    {arguments}    the arguments as a JSON object
    {params}       the arguments one by one, each as the pattern ``param`` says
    {python}       a list of calls as Python writes it: ``[f(a=1), g()]``
    {braces}       the arguments as Gemma writes them: ``{city:<escape>Paris<escape>,days:3}``
    {key} {value} {type}   in ``param``: an argument's name, its text, what tells text ("string", "true") from JSON
    {xml}          in its place: text in which ``<![CDATA[...]]>`` stands for what is in it

Where a second ``{key}`` closes an argument, as in ``<{key}>{value}</{key}>``, a value may be such arguments again: an
object, or, if all are called ``item``, a list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pumice.chat.calls import Call, Keys, as_json, braces_to_json, json_call, name_of_id, python_calls
from pumice.chat.source import Reading, Source, literal, read_brackets, read_name, read_until, skip_space

_FIELD = re.compile(r"\{(json|name|id|arguments|params|python|braces|key|value|xml|type)\}")
_WORD = re.compile(r"\s+|(?<=>)(?=<)")  # white space may stand between tags, too
_TAG = re.compile(r"<[^<>]+>|\[[^\[\]]+\]")
_NAME = re.compile(r"[\w.\-/:]*")
_KEY = re.compile(r"[\w.\-]*")
_JSON_MARK = re.compile(r'["{}\[\]]')
_PYTHON_MARK = re.compile(r"""["'\[\](){}\\]""")
CDATA = "<![CDATA[", "]]>"
ITEM = "item"  # the key of each value of a list
_MAX_DEPTH = 32  # of arguments in arguments
_MAX_PYTHON = 1 << 16  # characters of a list of calls: Python's own parser reads it


@dataclass(frozen=True)
class Pattern:
    """A compiled pattern."""

    text: str
    param: str = ""
    keys: Keys = field(default_factory=Keys)

    @cached_property
    def elements(self) -> list[tuple[str, str]]:
        """``("literal", word)`` and ``("field", name)``, in their order."""
        return _elements(self.text)

    @cached_property
    def param_elements(self) -> list[tuple[str, str]]:
        return _elements(self.param)

    @property
    def opening(self) -> str:
        """The literal that it begins with; empty if it begins with a field."""
        kind, text = self.elements[0]
        return text if kind == "literal" else ""

    def heads(self, others: Sequence[str]) -> list[str]:
        """Texts that begin it: its first tag, if none of ``others`` begins so, or all before its first field."""
        before = self.text.partition("{")[0].strip()
        tag = _TAG.match(before)
        if tag and not any(other.startswith(tag[0]) for other in others):
            return [tag[0]]
        if before.isalpha():  # a word like any, but for the JSON behind it
            return [before + bracket for bracket in "[{"]
        return [before] if "<" in before else [before, "".join(before.split())]

    def problem(self) -> str:
        """What is wrong with it, in a line; empty if nothing is."""
        fields = {name for kind, name in self.elements if kind == "field"}
        if not fields & {"json", "python"} and not (
            fields & {"name", "id"} and fields & {"arguments", "params", "braces"}
        ):
            return f"the pattern {self.text!r} has no field for a call, or for its name and arguments"
        if "params" in fields:
            param = [name for kind, name in self.param_elements if kind == "field"]
            whole = "key" in param and {"value", "xml"}.intersection(param)
            if not whole or self.param_elements[0][0] != "literal":
                return (
                    f"the pattern {self.param!r} of an argument must begin with a mark and have {{key}} and {{value}}"
                )
        return ""

    def read(self, source: Source, start: int) -> Reading[tuple[list[Call], int] | None]:
        """The calls at ``start`` and where they end; None if there are none."""
        found: dict[str, Any] = {}
        position: int | None = start
        for i, (kind, text) in enumerate(self.elements):
            assert position is not None
            if kind == "literal":
                position = yield from literal(source, position, text)
            elif text == "params":
                position = yield from self.read_params(source, position, found)
            else:
                after = self.elements[i + 1][1] if i + 1 < len(self.elements) else ""
                position = yield from read_field(source, position, text, after, found)
            if position is None:
                return None
        calls = self.calls(found)
        return (calls, position) if calls and position is not None else None

    def read_params(self, source: Source, position: int, found: dict[str, Any]) -> Reading[int]:
        """``found`` gets the arguments, and the names of those that may be text or JSON."""
        found["arguments"], found["texts"] = {}, set()
        while True:
            one: dict[str, Any] = {}
            end = yield from self._read_param(source, position, one)
            if end is None:
                return position
            position = end
            _take_argument(one, found)

    def _read_param(
        self, source: Source, position: int | None, one: dict[str, Any], depth: int = 0
    ) -> Reading[int | None]:
        for i, (kind, text) in enumerate(self.param_elements):
            assert position is not None
            if kind == "literal":
                position = yield from literal(source, position, text)
            elif text in one:  # a second {key}, as in </{key}>, closes the first
                position = yield from literal(source, position, one[text])
            else:
                after = self.param_elements[i + 1][1] if i + 1 < len(self.param_elements) else ""
                if text == "value" and self.nests and (yield from self._begins_another(source, position, after)):
                    position = yield from self._read_nested(source, position, after, one, depth + 1)
                else:
                    position = yield from read_field(source, position, text, after, one)
            if position is None:
                return None
        return position

    @cached_property
    def nests(self) -> bool:
        return self.param_elements.count(("field", "key")) > 1

    def _begins_another(self, source: Source, position: int, after: str) -> Reading[bool]:
        """Whether a value is arguments, and neither text nor nothing."""
        if (yield from literal(source, position, after)) is not None:
            return False
        return (yield from literal(source, position, self.param_elements[0][1])) is not None

    def _read_nested(
        self, source: Source, position: int, after: str, one: dict[str, Any], depth: int
    ) -> Reading[int | None]:
        parts: list[tuple[str, Any]] = []
        while (yield from literal(source, position, after)) is None:
            part: dict[str, Any] = {}
            end = (yield from self._read_param(source, position, part, depth)) if depth < _MAX_DEPTH else None
            if end is None:
                return None
            parts.append((part["key"], part["value"]))
            position = end
        one["value"] = [value for _, value in parts] if all(key == ITEM for key, _ in parts) else dict(parts)
        return position

    def calls(self, found: dict[str, Any]) -> list[Call]:
        """The calls that the fields give; none if a field is not what it should be."""
        if "json" in found:
            values = found["json"] if isinstance(found["json"], list) else [found["json"]]
            calls = [json_call(value, self.keys, may_lack_arguments=bool(self.opening)) for value in values]
        elif "python" in found:
            calls = found["python"]
        else:
            name, arguments = found.get("name"), found.get("arguments")
            name = name or name_of_id(found.get("id", ""))
            texts = frozenset(found.get("texts", ()))
            calls = [Call(name, arguments, found.get("id", ""), texts)] if isinstance(arguments, dict) else [None]
        known = [call for call in calls if call is not None and call.name]
        return known if len(known) == len(calls) else []


def is_name(text: str) -> bool:
    """Whether a tool may have this name."""
    return bool(text) and _NAME.fullmatch(text) is not None


def _elements(pattern: str) -> list[tuple[str, str]]:
    elements = []
    for i, part in enumerate(_FIELD.split(pattern)):
        if i % 2:
            elements.append(("field", part))
        else:
            elements += [("literal", word) for word in _WORD.split(part) if word]
    return elements


def read_field(source: Source, position: int, name: str, after: str, found: dict[str, Any]) -> Reading[int | None]:
    """Read one field into ``found``; ``after`` is the literal behind it. Where it ends, or None."""
    end: int | None
    if name in ("name", "id", "key", "type"):
        end = yield from read_name(source, position, _KEY if name == "key" else _NAME)
        found[name] = source.text[position:end].strip()
        return end if found[name] else None
    if name == "xml" and (inside := (yield from literal(source, position, CDATA[0]))) is not None:
        found["value"], end = yield from read_until(source, inside, CDATA[1], exactly=True)
        return end if end is None else end + len(CDATA[1])
    if name in ("value", "xml"):
        found["value"], end = yield from read_until(source, position, after)
        return end
    if name == "braces":
        text, end = yield from read_until(source, position, after)
        read = as_json(text)
        found["arguments"] = as_json(braces_to_json(text)) if isinstance(read, str) else read
        return end
    read = _read_python if name == "python" else _read_json
    found[name], end = yield from read(source, position)
    return end


def _read_json(source: Source, position: int) -> Reading[tuple[Any, int | None]]:
    """A JSON object or array, and where it ends."""
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


def _read_python(source: Source, position: int) -> Reading[tuple[list[Call] | None, int | None]]:
    """A list of calls with arguments by name, all of them constants, and where it ends."""
    start = yield from skip_space(source, position)
    if source.text[start : start + 1] != "[":
        return None, None
    end = yield from read_brackets(source, start, _PYTHON_MARK, "\"'")
    if end is None or end - start > _MAX_PYTHON:
        return None, None
    calls = python_calls(source.text[start:end])
    return (None, None) if calls is None else (calls, end)


def _take_argument(one: Mapping[str, Any], found: dict[str, Any]) -> None:
    key, value, kind = one["key"], one["value"], one.get("type")
    if kind is None:
        found["texts"].add(key)
    elif kind not in ("string", "true"):
        value = as_json(value)
    found["arguments"][key] = value
