"""What an answer has to look like: tool calls as the format writes them, and the form that was asked for.

Written in Lark as llguidance reads it (https://github.com/guidance-ai/llguidance, docs/syntax.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pumice.chat.braces import Braces
from pumice.chat.calls import Keys
from pumice.chat.formats import ChatFormat
from pumice.chat.pattern import Pattern
from pumice.chat.request import ChatRequest
from pumice.errors import RequestError
from pumice.grammar import JSON_OPTIONS, Grammar

_HEAD = """start: {start}
WS: /[ \\n]{{1,8}}/
ID: /[A-Za-z0-9_-]{{1,40}}/
NUMBER: /[0-9]{{1,3}}/
"""
_JSON_OPTIONS = {**JSON_OPTIONS, "lenient": True}  # tools are many: a keyword that is not known is left out
_ID = {
    "anyOf": [{"type": "string", "pattern": "^[A-Za-z0-9_-]{1,40}$"}, {"type": "integer", "minimum": 0, "maximum": 999}]
}
_WHOLE = ("json", "python")  # fields that are whole calls, of any of the tools
_MOST_CALLS = 16  # in one answer, where they have to come
_NAMES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}


def answer_grammar(
    request: ChatRequest, format: ChatFormat, opening: str, special: Mapping[str, int], form: str | None = None
) -> Grammar | None:
    """The grammar of an answer; None where it may be anything.

    Args:
        opening: what of the prompt begins the answer.
        special: ids of the control tokens among the format's marks, by their spelling.
        form: what was asked for beside tool calls, in llguidance's form.

    Raises RequestError for calls that have to come but cannot be described.
    """
    begin, end = format.reasoning
    reasons = opening.rfind(begin) > opening.rfind(end)
    reasoning = ("" if end in opening or request.reasoning is False else begin, end)
    calls = _Calls(request.tools, format, special, not request.parallel_tool_calls) if request.tools else None
    if request.tool_choice == "required":
        if calls is None or not calls.rules:
            raise RequestError("tool_choice: calls of this model's chat format cannot be enforced; use auto")
        return Grammar(calls.source(), reasoning=reasoning, reasons=reasons)
    if form is not None:
        source = _with_marks(form, format, special, calls)
        return Grammar(source, reasoning=reasoning, reasons=reasons)
    if calls is None or not calls.begins:
        return None
    return Grammar(calls.source(once=True), calls.begins, again=True, reasoning=(begin, end), reasons=reasons)


class _Calls:
    """The rules of all calls of some tools, or of ``single`` ones.

    ``begins``: texts that begin one; none where plain text may, too.
    """

    def __init__(
        self, tools: Sequence[Mapping[str, Any]], format: ChatFormat, special: Mapping[str, int], single: bool = False
    ) -> None:
        self._single = single
        self._format = format
        self._special = special
        self._values: list[str] = []
        functions = [tool["function"] for tool in tools]
        self._names = [function["name"] for function in functions]
        self.rules = [
            rule
            for pattern in format.asked
            for together in _together(pattern, functions)
            for rule in self._rules(pattern, together)
        ]
        self.begins = self._begins()

    def source(self, once: bool = False, other: str = "") -> str:
        """Calls, one after the other; ``once``: one, or one section. ``other`` is a rule that may stand for them."""
        before, after = self._format.section
        one = f"({' | '.join(f'call_{i}' for i in range(len(self.rules)))})"
        many = one if self._single or (once and not before) else f"{one} (WS? {one}){{0,{_MOST_CALLS - 1}}}"
        if before:
            many = " ".join(part for part in (self._literal(before), "WS?", many, "WS?", self._literal(after)) if part)
        silent = silent_marks(self._format, self._special, self._names)
        start = f"{silent} WS? ({many})" if not other else f"{silent} WS? ({many} | {other})"
        rules = [f"call_{i}: {rule}" for i, rule in enumerate(self.rules)]
        return "\n".join([_HEAD.format(start=start), *rules, *self._values])

    def _begins(self) -> list[str]:
        texts = [self._format.section[0]] if self._format.section[0] else []
        texts = texts or [pattern.text.partition("{")[0].rstrip() for pattern in self._format.asked]
        plain = [mark for mark in self._format.silent if any(mark.startswith(text) for text in texts)]
        return [] if plain or not self.rules else sorted({text for text in texts if text})

    def _rules(self, pattern: Pattern, functions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """The pattern with tools' names and arguments."""
        fields = {name for kind, name in pattern.elements if kind == "field"}
        parts = []
        for kind, text in pattern.elements:
            if kind == "literal":
                parts.append(self._literal(text))
            elif text == "id" and "name" not in fields:
                parts.append(self._literal(f"functions.{functions[0]['name']}:") + " NUMBER")
            elif text in _WHOLE:
                parts.append(self._whole(text, pattern, functions))
            else:
                parts.append(self._field(text, pattern, functions[0]))
        yield " WS? ".join(parts)

    def _field(self, field: str, pattern: Pattern, function: Mapping[str, Any]) -> str:
        schema = _parameters(function)
        if field == "name":
            return self._literal(function["name"])
        if field == "id":
            return "ID"
        if field == "arguments":
            return _json(schema)
        if field == "braces":
            return Braces(self._literal, self._quoted, lambda part: _json(part, schema)).object(schema)
        return self._params(pattern, schema)

    def _whole(self, field: str, pattern: Pattern, functions: Sequence[Mapping[str, Any]]) -> str:
        """A call of one of the tools, or a list of such calls."""
        calls = []
        for function in functions:
            schema = _parameters(function)
            if field == "json":
                calls.append(_json(_call_schema(pattern, function["name"], schema)))
            else:
                values = [f"{self._literal(name + '=')} {_json(part, schema)}" for name, part in _properties(schema)]
                calls.append(f'{self._literal(function["name"] + "(")} {_listed(values)} ")"')
        call = f"({' | '.join(calls)})"
        more = "" if self._single else f'(WS? "," WS? {call})*'
        listed = f'"[" WS? {call} {more} WS? "]"'
        return f"({call} | {listed})" if field == "json" else listed

    def _params(self, pattern: Pattern, schema: Mapping[str, Any]) -> str:
        """The rule of all arguments, in the order of the schema; those that need not come are optional."""
        required = schema.get("required", ())
        rules = [(name in required, self._param(pattern, name, part, schema)) for name, part in _properties(schema)]
        return " WS? ".join(rule if needed else f"({rule})?" for needed, rule in rules) or '""'

    def _param(self, pattern: Pattern, name: str, part: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
        """The rule of one argument."""
        kind = part.get("type", "string") if "enum" not in part else "string"
        parts: list[str] = []
        elements = pattern.param_elements
        skip = False
        for i, (what, text) in enumerate(elements):
            after = elements[i + 1][1] if i + 1 < len(elements) and elements[i + 1][0] == "literal" else ""
            if skip:
                skip = False
            elif what == "literal":
                parts.append(self._literal(text) + (" WS?" if after else ""))
            elif text == "key":
                parts.append(self._literal(name))
            elif text == "type":
                parts.append(self._literal(_type_word(pattern, kind)))
            elif isinstance(part.get("enum"), list) and all(isinstance(value, str) for value in part["enum"]):
                parts.append(f"WS? ({' | '.join(self._literal(value) for value in part['enum'])}) WS?")
            elif kind == "string" and after and not self._has_special(after):
                parts.append(self._text_until(after))
                skip = True
            elif kind == "string":
                parts.append("/(.|\\n)*/")
            else:
                parts.append(f"WS? {_json(part, schema)} WS?")
        return " ".join(parts)

    def _quoted(self, text: str | None) -> str:
        """A text between the format's quotes; None: any."""
        quote = self._format.quote
        if text is not None:
            return self._literal(f"{quote}{text}{quote}")
        until = f"/(.|\\n)*/ {self._literal(quote)}" if self._has_special(quote) else self._text_until(quote)
        return f"{self._literal(quote)} {until}"

    def _text_until(self, word: str) -> str:
        """A rule of its own: any text up to ``word``, and ``word``."""
        rule = f"text_{len(self._values)}"
        self._values.append(f"{rule}[suffix={json.dumps(word)}]: /(.|\\n)*/")
        return rule

    def _has_special(self, text: str) -> bool:
        return any(mark in text for mark in self._special)

    def _literal(self, text: str) -> str:
        return literal(text, self._special)


def _together(pattern: Pattern, functions: list[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The tools that one rule is for: all where they may stand in one list, else each."""
    if any(kind == "field" and text in _WHOLE for kind, text in pattern.elements):
        return [functions]
    return [[function] for function in functions]


def literal(text: str, special: Mapping[str, int]) -> str:
    """A text in Lark; what are control tokens in it are named by their ids."""
    if not text:
        return ""
    marks = sorted(special, key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, marks))})", text) if marks else [text]
    return " ".join(f"<[{special[part]}]>" if part in special else json.dumps(part) for part in parts if part)


def silent_marks(format: ChatFormat, special: Mapping[str, int], names: Sequence[str] = ()) -> str:
    """Marks that may stand before an answer and mean nothing; ``names``: of the tools."""
    marks = [literal(mark, special) for mark in format.silent_for(names)]
    return f"({' | '.join(f'({mark} WS?)' for mark in marks)})*" if marks else ""


def _with_marks(form: str, format: ChatFormat, special: Mapping[str, int], calls: _Calls | None) -> str:
    """``form`` after marks that mean nothing, or calls in its place."""
    if not format.silent and (calls is None or not calls.rules):
        return form
    if calls is not None and calls.rules:
        outer = calls.source(other="@form")
    else:
        outer = _HEAD.format(start=f"{silent_marks(format, special)} WS? @form")
    inner = json.loads(form)["grammars"] if form.lstrip().startswith("{") else [{"lark_grammar": form}]
    named = [{**inner[0], "name": "form"}, *inner[1:]]
    return json.dumps({"grammars": [{"name": "answer", "lark_grammar": outer}, *named]})


def _parameters(function: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = function.get("parameters")
    return parameters if isinstance(parameters, Mapping) and parameters else {"type": "object"}


def _properties(schema: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    properties = schema.get("properties")
    items = properties.items() if isinstance(properties, Mapping) else ()
    return [(name, part if isinstance(part, Mapping) else {}) for name, part in items]


def _call_schema(pattern: Pattern, name: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A call as a JSON object, its parts as the pattern names them."""
    keys = pattern.keys
    inner = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
    shared = {key: value for key, value in schema.items() if key in ("$defs", "definitions")}
    if not keys.name:
        properties: dict[str, Any] = {name: inner}
        required = [name]
    else:
        properties = {keys.name: {"const": name}, keys.arguments: inner}
        required = [keys.name, keys.arguments]
        identifier = {keys.id: _ID}  # which a model may write: at the end, as a rule
        properties = {**properties, **identifier} if keys.id == Keys.id else {**identifier, **properties}
    return {**shared, "type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _json(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> str:
    shared = {key: value for key, value in (root or {}).items() if key in ("$defs", "definitions")}
    return f"%json {json.dumps({**shared, **schema, 'x-guidance': _JSON_OPTIONS})}"


def _listed(parts: Sequence[str]) -> str:
    return ' WS? "," WS? '.join(parts) if parts else '""'


def _type_word(pattern: Pattern, kind: Any) -> str:
    """What ``{type}`` is: whether it is text, or the name of the type."""
    if 'string="{type}"' in pattern.param:
        return "true" if kind == "string" else "false"
    return _NAMES.get(kind, "object") if isinstance(kind, str) else "object"
