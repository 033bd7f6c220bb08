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

Readers are generators: they yield when they need more text, and return None where the text is something else. What
they decide never depends on where the text was cut.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]

_FIELD = re.compile(r"\{(json|name|id|arguments|params|python|braces|key|value|type)\}")
_WORD = re.compile(r"\s+|(?<=>)(?=<)")  # white space may stand between tags, too
_NAME = re.compile(r"[\w.\-/:]*")
_KEY = re.compile(r"[\w.\-]*")
_BARE_KEY = re.compile(r"([{,]\s*)([\w.\-]+)\s*:")
_QUOTE = re.compile(r'<\|"\|>|<escape>')
_SPACE = re.compile(r"\s*")
_JSON_MARK = re.compile(r'["{}\[\]]')
_STRING_MARK = re.compile(r'["\\]')
_PYTHON_MARK = re.compile(r"""["'\[\](){}\\]""")
_MAX_PYTHON = 1 << 16  # characters of a list of calls: Python's own parser reads it


class Source:
    """Text that is still coming; ``ended`` once there is no more."""

    def __init__(self) -> None:
        self.text = ""
        self.ended = False


@dataclass(frozen=True)
class Keys:
    """How JSON calls name their parts. With an empty ``name`` an object's only key is the name: ``{"f": {...}}``."""

    name: str = "name"
    arguments: str = "arguments"
    id: str = "id"


@dataclass(frozen=True)
class Call:
    """A call as it was written; the values of ``texts`` may be text or JSON: the tool's schema tells."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""
    texts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Pattern:
    """A compiled pattern."""

    text: str
    param: str = ""
    keys: Keys = Keys()

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

    def problem(self) -> str:
        """What is wrong with it, in a line; empty if nothing is."""
        fields = {name for kind, name in self.elements if kind == "field"}
        if not fields & {"json", "python"} and not (
            fields & {"name", "id"} and fields & {"arguments", "params", "braces"}
        ):
            return f"the pattern {self.text!r} has no field for a call, or for its name and arguments"
        if "params" in fields:
            param = [name for kind, name in self.param_elements if kind == "field"]
            if not {"key", "value"} <= set(param) or not self.param_elements or self.param_elements[0][0] != "literal":
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
                position = yield from self._read_params(source, position, found)
            else:
                after = self.elements[i + 1][1] if i + 1 < len(self.elements) else ""
                position = yield from _read_field(source, position, text, after, found)
            if position is None:
                return None
        calls = self._calls(found)
        return (calls, position) if calls and position is not None else None

    def _read_params(self, source: Source, position: int, found: dict[str, Any]) -> Reading[int]:
        """``found`` gets the arguments, and the names of those that may be text or JSON."""
        found["arguments"], found["texts"] = {}, set()
        while True:
            one: dict[str, Any] = {}
            end = yield from self._read_param(source, position, one)
            if end is None:
                return position
            position = end
            _take_argument(one, found)

    def _read_param(self, source: Source, position: int | None, one: dict[str, Any]) -> Reading[int | None]:
        for i, (kind, text) in enumerate(self.param_elements):
            assert position is not None
            if kind == "literal":
                position = yield from literal(source, position, text)
            elif text in one:  # a second {key}, as in </{key}>, closes the first
                position = yield from literal(source, position, one[text])
            else:
                after = self.param_elements[i + 1][1] if i + 1 < len(self.param_elements) else ""
                position = yield from _read_field(source, position, text, after, one)
            if position is None:
                return None
        return position

    def _calls(self, found: dict[str, Any]) -> list[Call]:
        """The calls that the fields give; none if a field is not what it should be."""
        if "json" in found:
            values = found["json"] if isinstance(found["json"], list) else [found["json"]]
            calls = [_json_call(value, self.keys, may_lack_arguments=bool(self.opening)) for value in values]
        elif "python" in found:
            calls = found["python"]
        else:
            name, arguments = found.get("name"), found.get("arguments")
            name = name or _name_of_id(found.get("id", ""))
            texts = frozenset(found.get("texts", ()))
            calls = [Call(name, arguments, found.get("id", ""), texts)] if isinstance(arguments, dict) else [None]
        known = [call for call in calls if call is not None and call.name]
        return known if len(known) == len(calls) else []


def _elements(pattern: str) -> list[tuple[str, str]]:
    elements = []
    for i, part in enumerate(_FIELD.split(pattern)):
        if i % 2:
            elements.append(("field", part))
        else:
            elements += [("literal", word) for word in _WORD.split(part) if word]
    return elements


def _skip_space(source: Source, position: int) -> Reading[int]:
    while True:
        match = _SPACE.match(source.text, position)
        assert match is not None
        position = match.end()
        if position < len(source.text) or source.ended:
            return position
        yield


def literal(source: Source, position: int, word: str) -> Reading[int | None]:
    """Where ``word`` ends, after white space; None if it is not there."""
    position = yield from _skip_space(source, position)
    while True:
        have = source.text[position : position + len(word)]
        if have == word:
            return position + len(word)
        if source.ended or not word.startswith(have):
            return None
        yield


def _read_field(source: Source, position: int, name: str, after: str, found: dict[str, Any]) -> Reading[int | None]:
    """Read one field into ``found``; ``after`` is the literal behind it. Where it ends, or None."""
    end: int | None
    if name in ("name", "id", "key", "type"):
        end = yield from _read_name(source, position, _KEY if name == "key" else _NAME)
        found[name] = source.text[position:end].strip()
        return end if found[name] else None
    if name == "value":
        found[name], end = yield from _read_until(source, position, after)
        return end
    if name == "braces":
        text, end = yield from _read_until(source, position, after)
        found["arguments"] = as_json(_braces_to_json(text))
        return end
    read = _read_python if name == "python" else _read_json
    found[name], end = yield from read(source, position)
    return end


def _read_name(source: Source, position: int, characters: re.Pattern[str]) -> Reading[int]:
    position = yield from _skip_space(source, position)
    while True:
        match = characters.match(source.text, position)
        assert match is not None
        position = match.end()
        if position < len(source.text) or source.ended:
            return position
        yield


def _read_until(source: Source, position: int, word: str) -> Reading[tuple[str, int | None]]:
    """The text before ``word``, without a line break at its ends, and where ``word`` begins."""
    searched = position
    while (end := source.text.find(word, searched)) < 0:
        if source.ended:
            return "", None
        searched = max(position, len(source.text) - len(word) + 1)
        yield
    return source.text[position:end].removeprefix("\n").removesuffix("\n"), end


def _read_json(source: Source, position: int) -> Reading[tuple[Any, int | None]]:
    """A JSON object or array, and where it ends."""
    start = yield from _skip_space(source, position)
    if source.text[start : start + 1] not in ("{", "["):
        return None, None
    end = yield from _read_brackets(source, start, _JSON_MARK, '"')
    if end is None:
        return None, None
    try:
        return json.loads(source.text[start:end], strict=False), end
    except (ValueError, RecursionError):
        return None, None


def _read_python(source: Source, position: int) -> Reading[tuple[list[Call] | None, int | None]]:
    """A list of calls with arguments by name, all of them constants, and where it ends."""
    start = yield from _skip_space(source, position)
    if source.text[start : start + 1] != "[":
        return None, None
    end = yield from _read_brackets(source, start, _PYTHON_MARK, "\"'")
    if end is None or end - start > _MAX_PYTHON:
        return None, None
    try:
        expression = ast.parse(source.text[start:end], mode="eval").body
        calls = [_python_call(node) for node in expression.elts] if isinstance(expression, ast.List) else []
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None, None
    return calls, end


def _read_brackets(source: Source, start: int, mark: re.Pattern[str], quotes: str) -> Reading[int | None]:
    """Where the bracket at ``start`` is closed. Brackets in strings do not count."""
    depth, position, quote = 0, start, ""
    while True:
        match = (_string_end(quote) if quote else mark).search(source.text, position)
        if match is None or (match[0] == "\\" and match.end() == len(source.text)):
            if source.ended:
                return None
            position = match.start() if match else len(source.text)
            yield
            continue
        position = match.end()
        if match[0] == "\\":
            position += 1
        elif quote:
            quote = ""
        elif match[0] in quotes:
            quote = match[0]
        else:
            depth += 1 if match[0] in "{[(" else -1
            if depth == 0:
                return position


def _string_end(quote: str) -> re.Pattern[str]:
    return _STRING_MARK if quote == '"' else re.compile(r"['\\]")


def _braces_to_json(text: str) -> str:
    """Gemma's arguments as JSON: quoted texts stand between marks, keys without quotes."""
    parts = _QUOTE.split(text)
    parts[::2] = [_BARE_KEY.sub(r'\1"\2":', part) for part in parts[::2]]
    parts[1::2] = [json.dumps(part) for part in parts[1::2]]
    return "".join(parts)


def _json_call(value: Any, keys: Keys, may_lack_arguments: bool) -> Call | None:
    """A call, with the usual other names of its parts where those of ``keys`` are missing."""
    if not isinstance(value, dict):
        return None
    if not keys.name:
        name, arguments = next(iter(value.items()), ("", None))
        return Call(name, arguments) if len(value) == 1 and isinstance(arguments, dict) else None
    function = value.get("function")
    value = {**value, **function} if isinstance(function, dict) else value
    name = _first(value, keys.name, "name", "tool_name", "function")
    arguments = _first(value, keys.arguments, "arguments", "parameters")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    if arguments is None and may_lack_arguments:
        arguments = {}
    identifier = _first(value, keys.id, "id", "tool_call_id")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return Call(name, arguments, str(identifier) if isinstance(identifier, str | int) else "")


def _first(value: Mapping[str, Any], *keys: str) -> Any:
    return next((value[key] for key in keys if key in value), None)


def _python_call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("not a call with arguments by name")
    arguments = {item.arg: _python_value(item.value) for item in node.keywords if item.arg}
    if len(arguments) < len(node.keywords):
        raise ValueError("arguments without a name")
    return Call(ast.unparse(node.func), arguments)


def _python_value(node: ast.expr) -> Any:
    value = ast.literal_eval(_JSONNames().visit(node))
    json.dumps(value)  # a set, or bytes, is no argument
    return value


class _JSONNames(ast.NodeTransformer):
    """JSON's names for true, false and null stand for their values."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        values = {"true": True, "false": False, "null": None}
        return ast.Constant(values[node.id]) if node.id in values else node


def _name_of_id(identifier: str) -> str:
    """Kimi's ids hold the name: ``functions.get_weather:0``."""
    return identifier.removeprefix("functions.").rpartition(":")[0]


def _take_argument(one: Mapping[str, Any], found: dict[str, Any]) -> None:
    key, value, kind = one["key"], one["value"], one.get("type")
    if kind is None:
        found["texts"].add(key)
    elif kind not in ("string", "true"):
        value = as_json(value)
    found["arguments"][key] = value


def as_json(text: str) -> Any:
    """The value that ``text`` is in JSON; the text itself if it is none."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text
