"""Validation of the schemas of a request's tools, in one call of the grammar checker."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pumice.chat.lark import TOOL_OPTIONS
from pumice.chat.schemas import Schema, patterns_of, regex_of_pattern, text_regex, without_patterns
from pumice.errors import RequestError
from pumice.grammar import GrammarChecker, check_schema, close_objects, enforceable, regex_source, schema_source
from pumice.grammar.limits import MAX_GENERATED, check_number


class ToolSchemas(Mapping[str, Schema]):
    """The schema of each tool's arguments by the tool's name, without patterns that cannot be compiled."""

    def __init__(self, tools: Sequence[Mapping[str, Any]], checker: GrammarChecker) -> None:
        """Raises RequestError if a schema is invalid or exceeds a limit."""
        functions = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools}
        schemas = {name: _object(schema) for name, schema in functions.items()}
        for name, schema in schemas.items():
            check_schema(_field(name), schema)
        schemas = {name: enforceable(schema, lenient=True) for name, schema in schemas.items()}
        check_number("tools", "characters of all parameters", len(json.dumps(schemas)), MAX_GENERATED)
        unreadable, self._regexes = _check_patterns(patterns_of(list(schemas.values())), checker)
        readable: dict[str, Schema] = {}
        n_characters = 0
        for name, schema in schemas.items():
            readable[name] = close_objects(_field(name), without_patterns(schema, unreadable))
            n_characters += len(json.dumps(readable[name]))
            check_number("tools", "characters of all parameters, closed,", n_characters, MAX_GENERATED)
        problems = checker.problems([schema_source(schema, TOOL_OPTIONS) for schema in readable.values()])
        for name, problem in zip(readable, problems, strict=True):
            if problem:
                raise RequestError(f"{_field(name)}: {problem}")
        self._schemas = readable

    def __getitem__(self, name: str) -> Schema:
        return self._schemas[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._schemas)

    def __len__(self) -> int:
        return len(self._schemas)

    def text_regex(self, schema: Schema) -> str:
        """Return ``pumice.chat.schemas.text_regex`` of a part of one of the schemas."""
        return text_regex(schema, self._regexes)


def _check_patterns(patterns: set[str], checker: GrammarChecker) -> tuple[set[str], set[str]]:
    """Return the patterns that cannot be compiled, and the anchored regular expressions that can."""
    listed = sorted(patterns)
    regexes = [regex for pattern in listed if (regex := regex_of_pattern(pattern))]
    sources = [schema_source({"type": "string", "pattern": pattern}, {}) for pattern in listed]
    problems = checker.problems([*sources, *map(regex_source, regexes)])
    unreadable = {pattern for pattern, problem in zip(listed, problems, strict=False) if problem}
    return unreadable, {regex for regex, problem in zip(regexes, problems[len(listed) :], strict=True) if not problem}


def _object(schema: Any) -> Schema:
    """Return the schema of arguments, without keywords that are null, which some tool servers write."""
    if not isinstance(schema, Mapping):
        return {"type": "object", "properties": {}}
    return {key: value for key, value in schema.items() if value is not None} or {"type": "object"}


def _field(name: str) -> str:
    return f"tools: parameters of {name!r:.80}"
