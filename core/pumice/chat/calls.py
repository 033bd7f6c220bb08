"""Parse tool calls from JSON objects, Python calls, and Gemma's braces."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_BARE_KEY = re.compile(r"([{,]\s*)([\w.\-]+)\s*:")
QUOTE = re.compile(r'<\|"\|>|<escape>')


@dataclass(frozen=True)
class Keys:
    """How JSON calls name their parts. With an empty ``name`` an object's only key is the name: ``{"f": {...}}``."""

    name: str = "name"
    arguments: str = "arguments"
    id: str = "id"


@dataclass(frozen=True)
class WrittenCall:
    """A tool call as the model wrote it.

    Attributes:
        name: name of the tool.
        arguments: values of the arguments, by name.
        id: identifier that the model gave the call; empty without one.
        texts: names of arguments written without quotes, which are text or JSON as the tool's schema says.
        partial: the text ended inside the call; ``arguments`` has those that were complete.
    """

    name: str
    arguments: Mapping[str, Any]
    id: str = ""
    texts: frozenset[str] = frozenset()
    partial: bool = False


def json_call(value: Any, keys: Keys, may_lack_arguments: bool) -> WrittenCall | None:
    """Return the call in a JSON value, or None.

    Common other names of its parts serve where those of ``keys`` are missing.
    """
    if not isinstance(value, dict):
        return None
    if not keys.name:
        name, arguments = next(iter(value.items()), ("", None))
        return WrittenCall(name, arguments) if len(value) == 1 and isinstance(arguments, dict) else None
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
    return WrittenCall(name, arguments, str(identifier) if isinstance(identifier, str | int) else "")


def _first(value: Mapping[str, Any], *keys: str) -> Any:
    return next((value[key] for key in keys if key in value), None)


def python_calls(text: str) -> list[WrittenCall] | None:
    """Return the calls in a Python list; None unless it is a list of calls with constant keyword arguments."""
    try:
        expression = ast.parse(text, mode="eval").body
        return [_python_call(node) for node in expression.elts] if isinstance(expression, ast.List) else []
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _python_call(node: ast.expr) -> WrittenCall:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("not a call with arguments by name")
    arguments = {item.arg: _python_value(item.value) for item in node.keywords if item.arg}
    if len(arguments) < len(node.keywords):
        raise ValueError("arguments without a name")
    return WrittenCall(ast.unparse(node.func), arguments)


def _python_value(node: ast.expr) -> Any:
    value = ast.literal_eval(_JSONNames().visit(node))
    json.dumps(value)  # raises TypeError for a set or bytes, which are not arguments
    return value


class _JSONNames(ast.NodeTransformer):
    """Replaces JSON's names true, false and null by Python's constants."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        values = {"true": True, "false": False, "null": None}
        return ast.Constant(values[node.id]) if node.id in values else node


def braces_to_json(text: str) -> str:
    """Convert Gemma's arguments, which have quoted strings between marks and bare keys, to JSON."""
    parts = QUOTE.split(text)
    parts[::2] = [_BARE_KEY.sub(r'\1"\2":', part) for part in parts[::2]]
    parts[1::2] = [json.dumps(part) for part in parts[1::2]]
    return "".join(parts)


def name_of_id(identifier: str) -> str:
    """Return the tool name within an id of Kimi K2, such as ``functions.get_weather:0``."""
    return identifier.removeprefix("functions.").rpartition(":")[0]


def as_json(text: str) -> Any:
    """Parse ``text`` as JSON; return the text itself if it is not JSON."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text
