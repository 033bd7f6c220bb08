"""The grammar of an answer: tool calls in the format's syntax, and the structure that a request asks for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pumice.chat.arguments import Arguments
from pumice.chat.calls import Keys
from pumice.chat.formats import ChatFormat
from pumice.chat.lark import Lark, definitions, json_of
from pumice.chat.parser import begun
from pumice.chat.pattern import Pattern, is_name
from pumice.chat.request import ChatRequest
from pumice.chat.schemas import Schema
from pumice.chat.tool_schemas import ToolSchemas
from pumice.errors import RequestError
from pumice.grammar import Grammar, GrammarChecker

_ID = {
    "anyOf": [{"type": "string", "pattern": "^[A-Za-z0-9_-]{1,40}$"}, {"type": "integer", "minimum": 0, "maximum": 999}]
}
_WHOLE = ("json", "python")  # fields that hold whole calls of any tool
_MAX_CALLS = 16  # in one answer whose calls are required


def answer_grammar(
    request: ChatRequest,
    format: ChatFormat,
    opening: str,
    special: Mapping[str, int],
    form: str | None = None,
    checker: GrammarChecker | None = None,
) -> Grammar | None:
    """Return the grammar of an answer, or None if it is unconstrained.

    Args:
        request: the checked request.
        format: chat format of the model.
        opening: end of the prompt that already belongs to the answer.
        special: ids of the control tokens among the format's marks, by their spelling.
        form: grammar that the content has to fit, as llguidance's source.
        checker: compiles the schemas of tools; None: in this process.

    Raises:
        RequestError: the request requires calls, which the format cannot describe.
    """
    begin, end = format.reasoning
    reasons = format.reasons_after(opening)
    reasoning = ("" if end in opening or request.reasoning is False else begin, end)
    tools = ToolSchemas(request.tools, checker or GrammarChecker())
    written = begun(opening, [*format.begins, *format.silent_for(tools)])
    calls = _Calls(tools, format, special, not request.parallel_tool_calls) if tools else None
    if request.tool_choice == "required":
        if calls is None or not calls.rules:
            raise RequestError("tool_choice: calls of this model's chat format cannot be enforced; use auto")
        return Grammar(calls.source(), opening=written, reasoning=reasoning, reasons=reasons)
    if form is not None:
        source = _with_marks(form, format, special, calls)
        if request.continues and not reasons:
            written, reasoning = request.messages[-1]["content"], ("", end)
        return Grammar(source, opening=written, reasoning=reasoning, reasons=reasons)
    if calls is None or not calls.rules:
        return None
    return Grammar(
        calls.source_of_one(),
        format.begins,
        calls.first,
        written,
        again=True,
        reasoning=(begin, end),
        reasons=reasons,
    )


class _Calls:
    """Grammar rules for calls of ``tools``; ``single`` allows one call per answer."""

    def __init__(
        self, tools: ToolSchemas, format: ChatFormat, special: Mapping[str, int], single: bool = False
    ) -> None:
        self._single = single
        self._format = format
        self._lark = Lark(special)
        self._tools = tools
        self._names = list(tools)
        self.rules = [
            self._lark.rule(self._rule(pattern, together))
            for pattern in format.asked
            for together in _together(pattern, tools)
        ]

    def source(self, other: str = "") -> str:
        """Return a grammar of consecutive calls; ``other`` is a rule that may replace them."""
        marks = self._marks(self._format.silent_for(self._names))
        answers = [self._in_section(self._many()), *([other] if other else [])]
        return self._lark.source(f"{marks} ({' | '.join(answers)})")

    def source_of_one(self) -> str:
        """Return a grammar of one call, a section of calls, or a silent mark that begins like a call."""
        silent = self._format.silent_for(self._names)
        strays = [mark for mark in silent if mark.startswith(self._format.begins)]
        marks = self._marks([mark for mark in silent if mark not in strays])
        ones = [self._one(), *([self._in_section(self._many())] if self._format.section[0] else [])]
        return self._lark.source(f"{marks} WS? ({' | '.join([*ones, *map(self._mark, strays)])})")

    @cached_property
    def first(self) -> list[str]:
        """Texts that begin a call without a mark, by a tool's name: they count only where the answer begins."""
        if self._format.section[0]:
            return []
        bare = [pattern for pattern in self._format.asked if not pattern.opening]
        return [text for pattern in bare for name in self._names for text in _bare(pattern, name)]

    def _marks(self, texts: Sequence[str]) -> str:
        return self._lark.any_of([self._mark(text) for text in texts])

    def _mark(self, text: str) -> str:
        """Return a rule for a silent mark.

        One that begins like a call is two words, since the lexer takes the longest.
        """
        openings = [pattern.opening for pattern in self._format.asked if pattern.opening]
        first = max((opening for opening in openings if text.startswith(opening)), key=len, default="")
        rest = text[len(first) :].lstrip(" ")
        if not first or not rest:
            return self._lark.literal(text)
        return f"{self._lark.literal(first)} WS? {self._lark.literal(rest)}"

    def _one(self) -> str:
        return f"({' | '.join(self.rules)})"

    def _many(self) -> str:
        one = self._one()
        return one if self._single else f"{one} (WS? {one}){{0,{_MAX_CALLS - 1}}}"

    def _in_section(self, calls: str) -> str:
        before, after = map(self._lark.literal, self._format.section)
        return " ".join(part for part in (before, before and "WS?", calls, after and "WS?", after) if part)

    def _rule(self, pattern: Pattern, functions: Mapping[str, Schema]) -> str:
        """Return a rule for the pattern, with one tool's name and arguments or with calls of all tools."""
        fields = {name for kind, name in pattern.elements if kind == "field"}
        name, schema = next(iter(functions.items()))
        parts: list[str] = []
        for i, (kind, text) in enumerate(pattern.elements):
            if kind == "literal":
                ends_name = i and pattern.elements[i - 1] == ("field", "name") and is_name(text[0])
                parts.append(f"{'WS ' * ends_name}{self._lark.literal(text)}")
            elif text == "id" and "name" not in fields:
                parts.append(self._lark.literal(f"functions.{name}:") + " NUMBER")
            elif text in _WHOLE:
                parts.append(self._whole(text, pattern, functions))
            else:
                parts.append(self._field(text, pattern, name, schema))
        return " WS? ".join(parts)

    def _field(self, field: str, pattern: Pattern, name: str, schema: Schema) -> str:
        arguments = Arguments(self._lark, schema, self._tools.text_regex)
        if field == "name":
            return self._lark.literal(name)
        if field == "id":
            return "ID"
        if field == "arguments":
            return arguments.json()
        return arguments.braces(self._format.quote) if field == "braces" else arguments.params(pattern)

    def _whole(self, field: str, pattern: Pattern, functions: Mapping[str, Schema]) -> str:
        """Return a rule for a call of one of the tools, or for a list of such calls."""
        calls = []
        for name, schema in functions.items():
            if field == "json":
                calls.append(self._lark.rule(json_of(_call_schema(pattern, name, schema))))
            else:
                python = Arguments(self._lark, schema, self._tools.text_regex).python()
                calls.append(self._lark.rule(f'{self._lark.literal(name + "(")} WS? {python} WS? ")"'))
        call = f"({' | '.join(calls)})"
        more = "" if self._single else f'(WS? "," WS? {call})*'
        listed = f'"[" WS? {call} {more} WS? "]"'
        return f"({call} | {listed})" if field == "json" else listed


def _bare(pattern: Pattern, name: str) -> list[str]:
    """Return the texts with which a call of a tool begins in a pattern without marks."""
    if pattern.elements[0] == ("field", "python"):
        return [f"[{name}("]
    call = f'"{pattern.keys.name}": {json.dumps(name)}'
    return [f"{bracket}{{{kind}{call}" for bracket in ("", "[") for kind in ("", '"type": "function", ')]


def _together(pattern: Pattern, functions: Mapping[str, Schema]) -> list[Mapping[str, Schema]]:
    """Group the tools by rule: all together if the pattern allows them in one list, else one by one."""
    if any(kind == "field" and text in _WHOLE for kind, text in pattern.elements):
        return [functions]
    return [{name: schema} for name, schema in functions.items()]


def _with_marks(form: str, format: ChatFormat, special: Mapping[str, int], calls: _Calls | None) -> str:
    """Return ``form`` with silent marks before it, or calls instead of it."""
    if not format.silent and (calls is None or not calls.rules):
        return form
    if calls is not None and calls.rules:
        outer = calls.source(other="@form")
    else:
        lark = Lark(special)
        marks = lark.any_of([lark.literal(mark) for mark in format.silent_for(())])
        outer = lark.source(f"{marks} @form")
    inner = json.loads(form)["grammars"] if form.lstrip().startswith("{") else [{"lark_grammar": form}]
    named = [{**inner[0], "name": "form"}, *inner[1:]]
    return json.dumps({"grammars": [{"name": "answer", "lark_grammar": outer}, *named]})


def _call_schema(pattern: Pattern, name: str, schema: Schema) -> Schema:
    """Return the schema of a call as a JSON object with the pattern's keys."""
    keys, shared = pattern.keys, definitions(schema)
    inner = {key: value for key, value in schema.items() if key not in shared}
    if not keys.name:
        properties: dict[str, Any] = {name: inner}
        required = [name]
    else:
        properties = {keys.name: {"const": name}, keys.arguments: inner}
        required = [keys.name, keys.arguments]
        identifier = {keys.id: _ID}  # optional; models usually write it last
        properties = {**properties, **identifier} if keys.id == Keys.id else {**identifier, **properties}
        if not pattern.opening:
            properties = {"type": {"const": "function"}, **properties}  # Llama writes it
    return {**shared, "type": "object", "properties": properties, "required": required, "additionalProperties": False}
