"""What types of values a JSON schema allows, and text read as a value of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pumice.chat.calls import as_json

Schema = Mapping[str, Any]

ANY_TEXT = r"(.|\n)*"
ALL = frozenset(["string", "integer", "number", "boolean", "null", "object", "array"])
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}
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


def types_of(schema: Any, root: Schema, known: dict[str, frozenset[str]] | None = None) -> frozenset[str]:
    """The types that values of a schema, a part of ``root``, may have. ``known``: of what a ``$ref`` names."""
    known = {} if known is None else known
    if not isinstance(schema, Mapping):
        return ALL
    if "enum" in schema or "const" in schema:
        return frozenset(_type_of(value) for value in listed(schema.get("enum")) or [schema.get("const")])
    kinds = listed(schema.get("type")) or [schema.get("type")]
    types = ALL.intersection(kind for kind in kinds if isinstance(kind, str))
    types |= {"integer"} if "number" in types else set()
    types = types or (frozenset(["object"]) if _OBJECT.intersection(schema) else ALL)
    if (reference := str(schema.get("$ref", ""))) and reference not in known:
        known[reference] = ALL  # while it is looked at, by which it may name itself
        known[reference] = types_of(referred(reference, root), root, known)
    types &= known.get(reference, ALL)
    for part in listed(schema.get("allOf")):
        types &= types_of(part, root, known)
    for key in ("anyOf", "oneOf"):
        if parts := listed(schema.get(key)):
            types &= frozenset().union(*(types_of(part, root, known) for part in parts))
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


def readable(schema: Any) -> Any:
    """A schema without the patterns that llguidance cannot read, as those of addresses that look ahead."""
    if isinstance(schema, Mapping):
        items = {key: readable(value) for key, value in schema.items()}
        pattern = items.get("pattern")
        if isinstance(pattern, str) and not _is_pattern(pattern):
            del items["pattern"]
        return items
    return [readable(value) for value in schema] if isinstance(schema, list | tuple) else schema


@lru_cache(256)
def _is_pattern(pattern: str) -> bool:
    from llguidance import LLMatcher

    schema = json.dumps({"type": "string", "pattern": pattern})
    return not LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(schema))


def text_regex(schema: Schema) -> str:
    """A regular expression of the texts that a schema allows: by a pattern of whole texts, or by their length."""
    least, most, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
    regex = ANY_TEXT
    if isinstance(pattern, str) and pattern.startswith("^") and pattern.endswith("$"):
        regex = f"({pattern[1:-1]})"
    elif isinstance(least, int) or isinstance(most, int):
        regex = f"(.|\\n){{{least or 0},{'' if most is None else most}}}"
    return regex if _is_regex(regex) else ANY_TEXT


@lru_cache(256)
def _is_regex(regex: str) -> bool:
    """Whether llguidance reads a regular expression; JSON schema's own have more."""
    from llguidance import LLMatcher

    return "/" not in regex and not LLMatcher.validate_grammar(LLMatcher.grammar_from_regex(regex))


def listed(value: Any) -> list[Any]:
    """A list; an empty one for what is none."""
    return list(value) if isinstance(value, list | tuple) else []


def _type_of(value: Any) -> str:
    return _TYPES.get(type(value), "null")


def _inside(schema: Any, *path: str) -> Any:
    for key in path:
        schema = schema.get(key) if isinstance(schema, Mapping) else None
    return schema
