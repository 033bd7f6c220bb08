"""Close the objects of a JSON schema to undeclared keys, as llama.cpp and OpenAI's strict mode do.

JSON Schema allows additional keys unless ``additionalProperties`` is false, and weak models then invent keys until
``max_tokens``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from pumice.grammar.limits import MAX_GENERATED, check_number
from pumice.grammar.schema_limits import referred

Schema = Mapping[str, Any]

_OPEN = frozenset(["additionalProperties", "patternProperties", "unevaluatedProperties"])  # keywords about other keys
_NAMED = ("properties", "patternProperties", "$defs", "definitions")  # keywords with a schema for each name
_ALTERNATIVES = ("anyOf", "oneOf")
_LISTED = (*_ALTERNATIVES, "allOf", "prefixItems", "items")
_SINGLE = ("items", "additionalProperties")


def close_objects(name: str, schema: Schema) -> dict[str, Any]:
    """Return the schema with ``additionalProperties: false`` for each object that declares only named keys.

    Schemas that together describe one object (``allOf``, or properties beside ``anyOf`` or ``$ref``) allow the keys of
    all of them, and each of them is written with all these keys.

    Args:
        name: name of the schema in error messages.
        schema: a schema within the limits of ``check_schema``.

    Raises:
        RequestError: combined schemas declare too many keys.
    """
    return _Closing(name, schema).schema()


class _Closing:
    """Closes one schema. Its work is limited, since short nodes may share thousands of keys."""

    def __init__(self, name: str, root: Schema) -> None:
        self._name = name
        self._root = root
        self._n_read = 0  # visited schemas, and characters of keys and references, counted at each visit
        combined = [node for node in _nodes(root) if _is_combined(node)]
        self._parts = {id(part) for node in combined for part in self._together(node) if part is not node}

    def schema(self) -> dict[str, Any]:
        closed: dict[str, Any] = self._closed(self._root)
        return closed

    def _count(self, n: int) -> None:
        self._n_read += n
        check_number(self._name, "characters of the keys of combined schemas", self._n_read, MAX_GENERATED)

    def _together(self, node: Schema) -> list[Schema]:
        """Return the schemas that describe the same value as ``node``, which comes first."""
        parts: dict[int, Schema] = {}
        waiting: deque[Any] = deque([node])
        while waiting:
            part = waiting.popleft()
            self._count(1)
            if isinstance(part, Mapping) and id(part) not in parts:
                parts[id(part)] = part
                reference = part.get("$ref")
                self._count(len(reference) if isinstance(reference, str) else 0)
                waiting.append(referred(reference, self._root))
                for key in ("allOf", *_ALTERNATIVES):
                    waiting += part[key] if isinstance(part.get(key), list | tuple) else ()
        return list(parts.values())

    def _closed(self, value: Any) -> Any:
        """Return a schema with closed objects; other values are returned unchanged."""
        if not isinstance(value, Mapping):
            return value
        node = dict(value)
        for key in _NAMED:
            if isinstance(node.get(key), Mapping):
                node[key] = {name: self._closed(inner) for name, inner in node[key].items()}
        for key in _LISTED:
            if isinstance(node.get(key), list | tuple):
                node[key] = [self._closed(inner) for inner in node[key]]
        for key in _SINGLE:
            if isinstance(node.get(key), Mapping):
                node[key] = self._closed(node[key])
        names = None if id(value) in self._parts else self._declared(value)
        if names is None or node.get("minProperties", 0) > len(names):
            return node
        own = node.get("properties", {})
        undescribed: dict[str, Any] = {name: {} for name in names if name not in own}
        return {**node, "properties": {**own, **undescribed}, "additionalProperties": False}

    def _declared(self, node: Schema) -> dict[str, None] | None:
        """Return the keys that the schemas of one object declare; None if they control other keys or declare none."""
        schemas = self._together(node) if _is_combined(node) else [node]
        described = [schema for schema in schemas if isinstance(schema.get("properties"), Mapping)]
        if not described or any(_OPEN.intersection(schema) for schema in schemas):
            return None
        required = [schema["required"] for schema in schemas if isinstance(schema.get("required"), list | tuple)]
        names: dict[str, None] = {}
        for listed in (*(schema["properties"] for schema in described), *required):
            self._count(sum(len(name) + 1 for name in listed if isinstance(name, str)))
            names |= dict.fromkeys(name for name in listed if isinstance(name, str))
        return names


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
    """Return True if several schemas describe one value."""
    all_of = node.get("allOf")
    single = sum(key in node for key in ("properties", "$ref", *_ALTERNATIVES))
    return single + (len(all_of) if isinstance(all_of, list | tuple) else 0) > 1
