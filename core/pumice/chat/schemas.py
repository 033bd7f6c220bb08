"""The types that a JSON schema allows, and the conversion of text to them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from pumice.chat.calls import as_json

Schema = Mapping[str, Any]

ANY_TEXT = r"(.|\n)*"
ALL = frozenset(["string", "integer", "number", "boolean", "null", "object", "array"])
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}
_MAX_REFERENCES, _MAX_PARTS = 64, 512  # of one schema, examined to determine the types of a value
_OBJECT = frozenset(["properties", "required", "additionalProperties"])  # keywords that only objects have


def typed(value: Any, schema: Any, root: Schema) -> Any:
    """Convert strings in a value, which may be text or JSON, as ``schema``, a part of ``root``, says."""
    if isinstance(value, dict):
        return {key: typed(part, _inside(schema, "properties", key), root) for key, part in value.items()}
    if isinstance(value, list):
        return [typed(part, _inside(schema, "items"), root) for part in value]
    types = types_of(schema, root)
    read = as_json(value)
    is_text = types != ALL and "string" in types and (isinstance(read, str) or _type_of(read) not in types)
    return value if is_text else read


def types_of(schema: Any, root: Schema) -> frozenset[str]:
    """Return the types that ``schema``, a part of ``root``, allows; all of them if it is too complex to tell."""
    return _Types(root).of(schema)


class _Types:
    """Determines the types that parts of one schema allow, examining a limited number of parts."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._known: dict[str, frozenset[str]] = {}  # by ``$ref``
        self._n_left = _MAX_PARTS

    def of(self, schema: Any) -> frozenset[str]:
        self._n_left -= 1
        if not isinstance(schema, Mapping) or self._n_left < 0 or len(self._known) > _MAX_REFERENCES:
            return ALL
        if "enum" in schema or "const" in schema:
            return frozenset(_type_of(value) for value in listed(schema.get("enum")) or [schema.get("const")])
        kinds = listed(schema.get("type")) or [schema.get("type")]
        types = ALL.intersection(kind for kind in kinds if isinstance(kind, str))
        types |= {"integer"} if "number" in types else set()
        types = types or (frozenset(["object"]) if _OBJECT.intersection(schema) else ALL)
        if (reference := str(schema.get("$ref", ""))) and reference not in self._known:
            self._known[reference] = ALL  # breaks cycles: the referenced schema may refer to itself
            self._known[reference] = self.of(referred(reference, self._root))
        types &= self._known.get(reference, ALL)
        for part in listed(schema.get("allOf")):
            types &= self.of(part)
        for key in ("anyOf", "oneOf"):
            if parts := listed(schema.get(key)):
                types &= frozenset().union(*map(self.of, parts))
        return types


def resolved(schema: Schema) -> Schema:
    """Return a schema whose top-level ``$ref`` into itself is replaced by its target."""
    part = referred(str(schema["$ref"]), schema) if "$ref" in schema else None
    return {**schema, **part} if isinstance(part, Mapping) else schema


def referred(reference: str, root: Schema) -> Any:
    """Return the part of a schema that a ``$ref`` names; None if it does not exist."""
    part: Any = root
    for key in filter(None, reference.removeprefix("#").split("/")):
        part = part.get(key) if isinstance(part, Mapping) else None
    return part


def patterns_of(schema: Any) -> set[str]:
    """Return all values of ``pattern`` in a schema."""
    patterns, waiting = set[str](), [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            if isinstance(pattern := value.get("pattern"), str):
                patterns.add(pattern)
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
    return patterns


def without_patterns(schema: Any, unreadable: Container[str]) -> Any:
    """Return a schema without the patterns that cannot be compiled, such as those with lookahead."""
    if isinstance(schema, Mapping):
        items = {key: without_patterns(value, unreadable) for key, value in schema.items()}
        if isinstance(items.get("pattern"), str) and items["pattern"] in unreadable:
            del items["pattern"]
        return items
    return [without_patterns(value, unreadable) for value in schema] if isinstance(schema, list | tuple) else schema


def regex_of_pattern(pattern: str) -> str:
    """Return the regular expression of a pattern anchored at both ends; empty for other patterns."""
    return f"({pattern[1:-1]})" if pattern.startswith("^") and pattern.endswith("$") else ""


def text_regex(schema: Schema, regexes: Container[str]) -> str:
    """Return a regular expression of the strings that a schema allows, by an anchored pattern or by their length.

    Args:
        schema: schema of a string.
        regexes: regular expressions that can be compiled; the others are treated as any text.
    """
    least, most, pattern = schema.get("minLength", 0), schema.get("maxLength"), schema.get("pattern")
    if isinstance(pattern, str) and (regex := regex_of_pattern(pattern)):
        return regex if regex in regexes and "/" not in regex else ANY_TEXT
    if type(least) is not int or least < 0:
        return ANY_TEXT
    if type(most) is int:
        return f"(.|\\n){{{least},{most}}}" if least <= most else ANY_TEXT
    return f"(.|\\n){{{least},}}" if least else ANY_TEXT


def listed(value: Any) -> list[Any]:
    """Return a list or tuple as a list; empty for any other value."""
    return list(value) if isinstance(value, list | tuple) else []


def _type_of(value: Any) -> str:
    return _TYPES.get(type(value), "null")


def _inside(schema: Any, *path: str) -> Any:
    for key in path:
        schema = schema.get(key) if isinstance(schema, Mapping) else None
    return schema
