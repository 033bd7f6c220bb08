"""Tool calls that the token limit cut off."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pumice.chat.calls import QUOTE, WrittenCall, as_json, braces_to_json, json_call, python_calls
from pumice.chat.incoming import IncomingText, Reading
from pumice.chat.pattern import Pattern, read_field

T = TypeVar("T")

_MARK = re.compile(r'"(?:[^"\\]|\\.)*+"|["{}\[\],:]')  # JSON tokens; a lone quote opens an unterminated string
_PYTHON_NAME = re.compile(r"\s*\[\s*([\w.]+)\s*\(")
_MAX_CUTS = 32  # positions at which a list of Python calls is cut


def cut_calls(patterns: Sequence[Pattern], text: str) -> list[WrittenCall] | None:
    """Return the calls in a truncated text; the last one is marked ``partial`` and has its complete arguments.

    The list is empty if a call has begun but its name is incomplete. Returns None if the text fits no pattern.
    """
    candidates = [calls for pattern in patterns if (calls := _cut(pattern, text)) is not None]
    return max(candidates, key=len, default=None)


def _cut(pattern: Pattern, text: str) -> list[WrittenCall] | None:
    source = IncomingText()
    source.text, source.ended = text, True
    fields: dict[str, Any] = {}
    position, after_params = 0, False
    for i, (kind, word) in enumerate(pattern.elements):
        rest = text[position:].lstrip()
        start = len(text) - len(rest)
        if kind == "literal":
            if not rest.startswith(word):
                if not (after_params or word.startswith(rest)):
                    return None
                break
            position = start + len(word)
        elif word == "params":
            position, after_params = _run(pattern.read_params(source, start, fields)), True
        else:
            after = pattern.elements[i + 1][1] if i + 1 < len(pattern.elements) else ""
            end = _run(read_field(source, start, word, after, fields))
            if word in ("name", "id") and end == len(text):  # it may be incomplete
                fields.pop(word)
                break
            if end is None:
                return _calls_of_field(pattern, word, rest, fields)
            position = end
    return _partial(pattern, fields)


def _calls_of_field(pattern: Pattern, field: str, rest: str, fields: dict[str, Any]) -> list[WrittenCall] | None:
    """Return the calls of the field in which the text ends."""
    if field == "json":
        return _json_calls(pattern, rest)
    if field == "python":
        return _python_calls(rest)
    if field == "braces":
        marks = list(QUOTE.finditer(rest))
        rest = braces_to_json(rest[: marks[-1].start()] if len(marks) % 2 else rest)  # an odd mark opens a string
    fields["arguments"] = complete_part(rest)[0]
    return _partial(pattern, fields)


def _partial(pattern: Pattern, fields: dict[str, Any]) -> list[WrittenCall]:
    arguments = fields.get("arguments")
    calls = pattern.calls({**fields, "arguments": arguments if isinstance(arguments, dict) else {}})
    return [*calls[:-1], replace(calls[-1], partial=True)] if calls else []


def _json_calls(pattern: Pattern, text: str) -> list[WrittenCall] | None:
    if text and text[0] not in "{[":
        return None
    value, n_open = complete_part(text)
    values = value if isinstance(value, list) else [value]
    calls = [json_call(item, pattern.keys, may_lack_arguments=True) for item in values]
    named = [call for call in calls if call is not None and call.name]
    is_cut = n_open > isinstance(value, list) and bool(calls) and calls[-1] is not None
    return [*named[:-1], replace(named[-1], partial=True)] if named and is_cut else named


def _python_calls(text: str) -> list[WrittenCall] | None:
    """Return the Python calls up to the last complete argument."""
    name = _PYTHON_NAME.match(text)
    commas = [match.start() for match in re.finditer(",", text)][-_MAX_CUTS:]
    for end in reversed(commas):
        for close in (")]", "]"):
            if calls := python_calls(text[:end] + close):
                return [*calls[:-1], replace(calls[-1], partial=close == ")]")]
    if name is None:
        return [] if text.startswith("[") else None
    return [WrittenCall(name[1], {}, partial=True)]


def complete_part(text: str) -> tuple[Any, int]:
    """Return the complete part of truncated JSON, and the number of open brackets."""
    brackets: list[str] = []
    last = ""  # most recent bracket, comma or colon
    end, closing = 0, ""
    for match in _MARK.finditer(text):
        mark = match[0]
        if mark == '"':
            break
        if mark in ("{", "["):
            brackets.append("}" if mark == "{" else "]")
        elif mark in ("}", "]") and brackets:
            brackets.pop()
        is_value = mark.startswith('"') and (last in (":", "[", "") or (last == "," and brackets[-1:] == ["]"]))
        if mark in ("{", "[", "}", "]") or is_value:
            end, closing = match.end(), "".join(reversed(brackets))
        elif mark == ",":
            end, closing = match.start(), "".join(reversed(brackets))
        if not mark.startswith('"'):
            last = mark
        if not brackets:
            break
    value = as_json(text[:end] + closing)
    return (None if isinstance(value, str) else value), len(brackets)


def _run(reading: Reading[T]) -> T:
    """Return the result of a reader whose source has ended, which therefore never waits."""
    try:
        next(reading)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("the reader waits for text although the source has ended")
