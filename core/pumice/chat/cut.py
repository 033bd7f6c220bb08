"""Tool calls that end in the middle, because no more tokens were allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pumice.chat.calls import QUOTE, Call, as_json, braces_to_json, json_call, python_calls
from pumice.chat.pattern import Pattern, read_field
from pumice.chat.source import Reading, Source

T = TypeVar("T")

_MARK = re.compile(r'"(?:[^"\\]|\\.)*+"|["{}\[\],:]')  # of JSON; a quote alone opens a string that does not end
_PYTHON_NAME = re.compile(r"\s*\[\s*([\w.]+)\s*\(")
_MOST_CUTS = 32  # places at which a list of Python's calls is cut


def cut_calls(patterns: Sequence[Pattern], text: str) -> list[Call] | None:
    """Return the calls that a text begins to write, the last of them with ``partial``.

    The arguments are those that are complete. The list is empty where a call has begun and its name is not complete;
    None where the text fits none of the patterns.
    """
    found = [calls for pattern in patterns if (calls := _cut(pattern, text)) is not None]
    return max(found, key=len, default=None)


def _cut(pattern: Pattern, text: str) -> list[Call] | None:
    source = Source()
    source.text, source.ended = text, True
    found: dict[str, Any] = {}
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
            position, after_params = _run(pattern.read_params(source, start, found)), True
        else:
            after = pattern.elements[i + 1][1] if i + 1 < len(pattern.elements) else ""
            end = _run(read_field(source, start, word, after, found))
            if word in ("name", "id") and end == len(text):  # it may go on
                found.pop(word)
                break
            if end is None:
                return _calls_of_field(pattern, word, rest, found)
            position = end
    return _partial(pattern, found)


def _calls_of_field(pattern: Pattern, field: str, rest: str, found: dict[str, Any]) -> list[Call] | None:
    """The calls of a field in which the text ends."""
    if field == "json":
        return _json_calls(pattern, rest)
    if field == "python":
        return _python_calls(rest)
    if field == "braces":
        marks = list(QUOTE.finditer(rest))
        rest = braces_to_json(rest[: marks[-1].start()] if len(marks) % 2 else rest)  # a text that does not end
    found["arguments"] = complete_part(rest)[0]
    return _partial(pattern, found)


def _partial(pattern: Pattern, found: dict[str, Any]) -> list[Call]:
    arguments = found.get("arguments")
    calls = pattern.calls({**found, "arguments": arguments if isinstance(arguments, dict) else {}})
    return [*calls[:-1], replace(calls[-1], partial=True)] if calls else []


def _json_calls(pattern: Pattern, text: str) -> list[Call] | None:
    if text and text[0] not in "{[":
        return None
    value, n_open = complete_part(text)
    values = value if isinstance(value, list) else [value]
    calls = [json_call(each, pattern.keys, may_lack_arguments=True) for each in values]
    named = [call for call in calls if call is not None and call.name]
    is_cut = n_open > isinstance(value, list) and bool(calls) and calls[-1] is not None
    return [*named[:-1], replace(named[-1], partial=True)] if named and is_cut else named


def _python_calls(text: str) -> list[Call] | None:
    """Python's calls up to the last argument that is complete."""
    name = _PYTHON_NAME.match(text)
    commas = [match.start() for match in re.finditer(",", text)][-_MOST_CUTS:]
    for end in reversed(commas):
        for close in (")]", "]"):
            if calls := python_calls(text[:end] + close):
                return [*calls[:-1], replace(calls[-1], partial=close == ")]")]
    if name is None:
        return [] if text.startswith("[") else None
    return [Call(name[1], {}, partial=True)]


def complete_part(text: str) -> tuple[Any, int]:
    """Return the complete part of JSON that ends in the middle, and how many brackets are open."""
    brackets: list[str] = []
    last = ""  # bracket, comma or colon
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
    """The result of a reader whose source has ended: it asks for no more text."""
    try:
        next(reading)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("a reader waits for text after its end")
