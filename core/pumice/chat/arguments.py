"""Grammars of tool-call arguments in Lark: the schema of a tool, in each syntax in which models write arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pumice.chat.lark import Lark, json_of
from pumice.chat.pattern import CDATA, ITEM, Pattern
from pumice.chat.schemas import ANY_TEXT, Schema, listed, resolved, types_of

_TYPES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "array": "array"}
_CONSTANTS = {"boolean": ('"True"', '"False"'), "null": ('"None"',)}  # Python's constants, as Lark literals
_BARE_COMMA = '","'
_COMMA = 'WS? "," WS?'
_LIMITS = frozenset(["pattern", "format", "minLength", "maxLength"])  # string keywords that only a JSON rule can check
_NO_CDATA = r"(([^<]|<[^!])(.|\n)*)?"


class Arguments:
    """Grammar rules for the arguments of one tool; ``schema`` describes them as an object."""

    def __init__(self, lark: Lark, schema: Schema, text_regex: Callable[[Schema], str]) -> None:
        """``text_regex`` returns a regular expression for the strings that a schema allows."""
        self._lark = lark
        self._text_regex = text_regex
        self._schema = resolved(schema)

    def json(self) -> str:
        return self._json(self._schema)

    def params(self, pattern: Pattern) -> str:
        """Return a rule for arguments one by one, in the schema's order; optional ones may be left out."""
        return self._params(pattern, self._schema) or '""'

    def braces(self, quote: str) -> str:
        """Return a rule in Gemma's syntax, sorted by name: ``{city:<|"|>Paris<|"|>,days:3}``."""
        return self._braced(self._schema, quote)

    def python(self) -> str:
        """Return a rule for Python keywords in the schema's order: ``city='Paris', days=3``."""
        properties = _properties(self._schema)
        parts = [
            (needed, f"{self._lark.literal(name + '=')} {self._python(part)}") for name, part, needed in properties
        ]
        return self._lark.sequence(parts, _COMMA)

    def _json(self, part: Schema) -> str:
        return self._lark.rule(json_of(part, self._schema))

    def _params(self, pattern: Pattern, schema: Schema) -> str:
        rules = [(needed, self._param(pattern, name, part)) for name, part, needed in _properties(schema)]
        return " WS? ".join(rule if needed else f"({rule})?" for needed, rule in rules)

    def _param(self, pattern: Pattern, name: str, part: Schema) -> str:
        """Return a rule for one argument; a value and the literal after it form one rule."""
        parts: list[str] = []
        elements = pattern.param_elements
        for i, (kind, text) in enumerate(elements):
            after = elements[i + 1][1] if elements[i + 1 : i + 2] and elements[i + 1][0] == "literal" else ""
            if kind == "literal" and i and elements[i - 1][1] in ("value", "xml"):
                continue
            if kind == "literal":
                parts.append(self._lark.literal(text) + (" WS?" if after else ""))
            elif text == "key":
                parts.append(self._lark.literal(name))
            elif text == "type":
                parts.append(self._lark.literal(self._type_word(pattern, part)))
            else:
                parts.append(self._value(pattern, part, after, is_xml=text == "xml"))
        return " ".join(parts)

    def _value(self, pattern: Pattern, part: Schema, after: str, is_xml: bool) -> str:
        """Return a rule for a value, text or JSON as its schema says, and for the literal ``after`` it."""
        close = self._lark.literal(after)
        texts = _texts(part)
        if texts:
            return f"NEWLINE? ({' | '.join(map(self._lark.literal, texts))}) NEWLINE? {close}"
        if self._may_be_text(part) and is_xml:
            quoted = f"{self._lark.literal(CDATA[0])} {self._lark.text_until(CDATA[1])} {close}"
            return f"({quoted} | {self._lark.text_until(after, _NO_CDATA)})"
        if self._may_be_text(part):
            return self._lark.text_until(after, self._regex(part))
        values = [f"WS? {self._json(part)} WS?"]
        items = part.get("items")
        if pattern.nests and part.get("type") == "object" and _properties(part):
            nested = [(needed, self._param(pattern, name, inner)) for name, inner, needed in _properties(part)]
            values.append(self._lark.sequence(nested, "WS?", may_be_empty=False))
        elif pattern.nests and part.get("type") == "array" and isinstance(items, Mapping):
            values.append(f"({self._lark.rule(self._param(pattern, ITEM, items))})+")
        return f"({' | '.join(values)}) {close}"

    def _type_word(self, pattern: Pattern, part: Schema) -> str:
        """Return what stands for ``{type}``: "true" or "false" for text or JSON, or the name of the type."""
        is_text = bool(_texts(part)) or self._may_be_text(part)
        if 'string="{type}"' in pattern.param:
            return "true" if is_text else "false"
        kind = part.get("type")
        return "string" if is_text else _TYPES.get(kind, "object") if isinstance(kind, str) else "object"

    def _regex(self, part: Schema) -> str:
        """Return the regular expression of the strings that an unquoted value may be."""
        types = types_of(part, self._schema)
        choices = listed(part.get("anyOf"))
        texts = [choice for choice in choices if isinstance(choice, Mapping) and self._may_be_text(choice)]
        regex = self._text_regex(texts[0] if len(texts) == 1 else part)
        if types - {"string", "null"}:
            return ANY_TEXT
        return f"({regex}|null)" if "null" in types and regex != ANY_TEXT else regex

    def _may_be_text(self, part: Schema) -> bool:
        return "string" in types_of(part, self._schema)

    def _braced(self, schema: Schema, quote: str) -> str:
        if not _properties(schema):
            open_ended = schema.get("additionalProperties", True)
            return self._json({**schema, "type": "object"}) if open_ended else '"{}"'
        parts = [
            (needed, f"{self._lark.literal(f'{name}:')} {self._braced_value(part, quote)}")
            for name, part, needed in sorted(_properties(schema), key=lambda item: item[0].lower())
        ]
        return f'"{{" {self._lark.sequence(parts, _BARE_COMMA)} "}}"'

    def _braced_value(self, part: Schema, quote: str) -> str:
        mark, kind, items = self._lark.literal(quote), part.get("type"), part.get("items")
        texts = _texts(part)
        if texts:
            return f"({' | '.join(self._lark.literal(quote + text + quote) for text in texts)})"
        if kind == "string":
            return f"{mark} {self._lark.text_until(quote, self._text_regex(part))}"
        if kind == "object":
            return self._braced(part, quote)
        if kind == "array" and isinstance(items, Mapping):
            return _list_of(self._lark.rule(self._braced_value(items, quote)), part)
        if "anyOf" in part:
            schemas = [choice for choice in listed(part["anyOf"]) if isinstance(choice, Mapping)]
            choices = [self._braced_value(choice, quote) for choice in schemas]
            return f"({' | '.join(choices)})" if choices else self._json(part)
        return self._json(part)

    def _python(self, part: Schema) -> str:
        """Return a rule for a value in JSON's or Python's syntax."""
        kind, items = part.get("type"), part.get("items")
        values = [self._json(part)]
        if texts := _texts(part):
            values += [self._lark.literal(repr(text)) for text in texts]
        elif kind == "string" and not _LIMITS.intersection(part):
            values.append("QUOTED")
        elif str(kind) in _CONSTANTS:
            values += _CONSTANTS[str(kind)]
        elif "anyOf" in part:
            values += [self._python(choice) for choice in listed(part["anyOf"]) if isinstance(choice, Mapping)]
        elif kind == "array" and isinstance(items, Mapping):
            values.append(_list_of(self._lark.rule(self._python(items)), part))
        return f"({' | '.join(values)})"


def _properties(schema: Schema) -> list[tuple[str, Schema, bool]]:
    """Return name, schema and ``required`` of each property that some value can fit."""
    properties = schema.get("properties")
    items = properties.items() if isinstance(properties, Mapping) else ()
    required = listed(schema.get("required"))
    parts = [
        (name, part if isinstance(part, Mapping) else {"enum": []} if part is False else {}) for name, part in items
    ]
    return [(name, part, name in required) for name, part in parts if part.get("enum") != []]


def _texts(part: Schema) -> list[str]:
    """Return the strings that a value is limited to; empty if it may be anything else."""
    values = listed(part["enum"]) if "enum" in part else [part.get("const")]
    texts = [value for value in values if isinstance(value, str)]
    return texts if len(texts) == len(values) else []


def _list_of(item: str, part: Schema) -> str:
    """Return a rule for a list of ``item`` with the schema's limits on its length."""
    least, most = part.get("minItems"), part.get("maxItems")
    least = least if isinstance(least, int) else 0
    if most == 0:
        return '"[" WS? "]"'
    more = f"{{{max(least - 1, 0)},{most - 1 if isinstance(most, int) else ''}}}"
    return f'"[" WS? ({item} ({_COMMA} {item}){more}){"" if least > 0 else "?"} WS? "]"'
