"""Objects of a JSON schema closed to keys that it does not declare, as llama.cpp and OpenAI's strict mode read schemas.

JSON Schema allows further keys where ``additionalProperties`` is not given, and weak models then invent keys until
``max_tokens``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pumice.grammar.schema_limits import referred

Schema = Mapping[str, Any]

_OPEN = frozenset(["additionalProperties", "patternProperties", "unevaluatedProperties"])  # keywords about other keys
_NAMED = ("properties", "patternProperties", "$defs", "definitions")  # keywords with a schema for each name
_ALTERNATIVES = ("anyOf", "oneOf")
_LISTED = (*_ALTERNATIVES, "allOf", "prefixItems", "items")
_SINGLE = ("items", "additionalProperties")


def close_objects(schema: Schema) -> dict[str, Any]:
    """Return the schema with ``additionalProperties: false`` for each object that declares keys and no others.

    Schemas that describe one object together (``allOf``, or properties beside ``anyOf`` or ``$ref``) allow the keys of
    all of them. The schema must be within the limits of ``check_schema``.
    """
    combined = [node for node in _nodes(schema) if _is_combined(node)]
    parts = {id(part) for node in combined for part in _parts(node, schema) if part is not node}
    closed: dict[str, Any] = _closed(schema, schema, parts)
    return closed


def _nodes(schema: Any) -> Iterator[Schema]:
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            yield node
            waiting += _inner(node)


def _inner(node: Schema) -> Iterator[Any]:
    for key in _NAMED:
        yield from node[key].values() if isinstance(node.get(key), Mapping) else ()
    for key in _LISTED:
        yield from node[key] if isinstance(node.get(key), list | tuple) else ()
    yield from (node[key] for key in _SINGLE if isinstance(node.get(key), Mapping))


def _is_combined(node: Schema) -> bool:
    """Whether several schemas describe one value."""
    all_of = node.get("allOf")
    single = sum(key in node for key in ("properties", "$ref", *_ALTERNATIVES))
    return single + (len(all_of) if isinstance(all_of, list | tuple) else 0) > 1


def _parts(node: Schema, root: Schema) -> list[Schema]:
    """The schemas that describe the same value as ``node``, which is the first of them."""
    parts: dict[int, Schema] = {}
    waiting: list[Any] = [node]
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, Mapping) and id(part) not in parts:
            parts[id(part)] = part
            waiting += [referred(part.get("$ref"), root)]
            for key in ("allOf", *_ALTERNATIVES):
                waiting += part[key] if isinstance(part.get(key), list | tuple) else ()
    return list(parts.values())


def _closed(value: Any, root: Schema, parts: set[int]) -> Any:
    """A schema, or what is none, with closed objects; ``parts``: ids of schemas that another one closes."""
    if not isinstance(value, Mapping):
        return value
    node = dict(value)
    for key in _NAMED:
        if isinstance(node.get(key), Mapping):
            node[key] = {name: _closed(inner, root, parts) for name, inner in node[key].items()}
    for key in _LISTED:
        if isinstance(node.get(key), list | tuple):
            node[key] = [_closed(inner, root, parts) for inner in node[key]]
    for key in _SINGLE:
        if isinstance(node.get(key), Mapping):
            node[key] = _closed(node[key], root, parts)
    names = None if id(value) in parts else _declared(_parts(value, root) if _is_combined(value) else [value])
    if names is None or node.get("minProperties", 0) > len(names):
        return node
    own = node.get("properties", {})
    undescribed: dict[str, Any] = {name: {} for name in names if name not in own}
    return {**node, "properties": {**own, **undescribed}, "additionalProperties": False}


def _declared(schemas: list[Schema]) -> dict[str, None] | None:
    """The keys that schemas of one object declare; None where they say themselves which others may come, or none is."""
    described = [schema for schema in schemas if isinstance(schema.get("properties"), Mapping)]
    if not described or any(_OPEN.intersection(schema) for schema in schemas):
        return None
    names = dict.fromkeys(name for schema in described for name in schema["properties"])
    required = [schema["required"] for schema in schemas if isinstance(schema.get("required"), list | tuple)]
    return names | dict.fromkeys(name for listed in required for name in listed if isinstance(name, str))
