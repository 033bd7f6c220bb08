"""What types of values a JSON schema allows, and text read as a value of them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from pumice.chat.calls import as_json

Schema = Mapping[str, Any]

ANY_TEXT = r"(.|\n)*"
ALL = frozenset(["string", "integer", "number", "boolean", "null", "object", "array"])
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}
_MAX_REFERENCES, _MAX_PARTS = 64, 512  # of a schema, that are looked at to tell the types of a value
_OBJECT = frozenset(["properties", "required", "additionalProperties"])  # keywords of objects alone


def typed(value: Any, schema: Any, root: Schema) -> Any:
    """A value whose texts may be text or JSON, as a schema, a part of ``root``, has it."""
    if isinstance(value, dict):
        return {key: typed(part, _inside(schema, "properties", key), root) for key, part in value.items()}
    if isinstance(value, list):
        return [typed(part, _inside(schema, "items"), root) for part in value]
    types = types_of(schema, root)
    read = as_json(value)
    is_text = types != ALL and "string" in types and (isinstance(read, str) or _type_of(read) not in types)
    return value if is_text else read


def types_of(schema: Any, root: Schema) -> frozenset[str]:
    """The types that values of a schema, a part of ``root``, may have; all where it would take long to tell."""
    return _Types(root).of(schema)


class _Types:
    """Looks at parts of one schema, at so many of them that it stays quick."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._known: dict[str, frozenset[str]] = {}  # of what a ``$ref`` names
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
            self._known[reference] = ALL  # while it is looked at, by which it may name itself
            self._known[reference] = self.of(referred(reference, self._root))
        types &= self._known.get(reference, ALL)
        for part in listed(schema.get("allOf")):
            types &= self.of(part)
        for key in ("anyOf", "oneOf"):
            if parts := listed(schema.get(key)):
                types &= frozenset().union(*map(self.of, parts))
        return types


def resolved(schema: Schema) -> Schema:
    """A schema in place of one that is only a ``$ref`` into itself."""
    part = referred(str(schema["$ref"]), schema) if "$ref" in schema else None
    return {**schema, **part} if isinstance(part, Mapping) else schema


def referred(reference: str, root: Schema) -> Any:
    """The part of a schema that a ``$ref`` names; None if there is none."""
    part: Any = root
    for key in filter(None, reference.removeprefix("#").split("/")):
        part = part.get(key) if isinstance(part, Mapping) else None
    return part


def patterns_of(schema: Any) -> set[str]:
    """The patterns of texts in a schema."""
    found, waiting = set[str](), [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            if isinstance(pattern := value.get("pattern"), str):
                found.add(pattern)
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
    return found


def without_patterns(schema: Any, unreadable: Container[str]) -> Any:
    """A schema without the patterns that cannot be compiled, as those of addresses that look ahead."""
    if isinstance(schema, Mapping):
        items = {key: without_patterns(value, unreadable) for key, value in schema.items()}
        if isinstance(items.get("pattern"), str) and items["pattern"] in unreadable:
            del items["pattern"]
        return items
    return [without_patterns(value, unreadable) for value in schema] if isinstance(schema, list | tuple) else schema


def regex_of_pattern(pattern: str) -> str:
    """The regular expression of the texts that a pattern of whole texts allows; empty for another pattern."""
    return f"({pattern[1:-1]})" if pattern.startswith("^") and pattern.endswith("$") else ""


def text_regex(schema: Schema, regexes: Container[str]) -> str:
    """A regular expression of the texts that a schema allows: by a pattern of whole texts, or by their length.

    ``regexes``: those of patterns that can be compiled; JSON Schema's own have more.
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
    """A list; an empty one for what is none."""
    return list(value) if isinstance(value, list | tuple) else []


def _type_of(value: Any) -> str:
    return _TYPES.get(type(value), "null")


def _inside(schema: Any, *path: str) -> Any:
    for key in path:
        schema = schema.get(key) if isinstance(schema, Mapping) else None
    return schema
