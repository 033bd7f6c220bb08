"""The keywords of JSON Schema: which ones are enforced, and a schema rewritten to those that the compiler enforces.

A schema describes more than a grammar can enforce. ``KEYWORDS`` and ``FORMATS`` say what is passed over; the rewritten
schema allows every value that the schema allows. ``docs/structured_output.md`` shows both as tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from pumice.grammar.ecma import to_rust
from pumice.grammar.limits import MAX_MULTIPLE

Schema = Mapping[str, Any]


class Support(Enum):
    """How a keyword is treated."""

    ENFORCED = "enforced"
    PASSED_OVER = "passed over"
    REFUSED = "refused"


FORMATS = frozenset("date-time date time duration email hostname ipv4 ipv6 uri uuid".split())  # noqa: SIM905
"""Formats of strings that are enforced. All others are passed over, as are formats of numbers."""

MAX_EXACT = 2**53
"""Bounds of numbers beyond this are replaced by it, or passed over: the compiler computes them in float64."""

_E, _P, _R = Support.ENFORCED, Support.PASSED_OVER, Support.REFUSED
KEYWORDS: dict[str, tuple[Support, str]] = {
    "type": (_E, ""),
    "enum": (_E, ""),
    "const": (_E, ""),
    "properties": (_E, "and no other keys, unless the schema mentions them"),
    "required": (_E, ""),
    "additionalProperties": (_E, ""),
    "patternProperties": (_E, ""),
    "minProperties": (_E, "of objects without `properties`; of others it opens them to further keys"),
    "maxProperties": (_E, "of objects without `properties`"),
    "propertyNames": (_E, "`enum`, `const` or `pattern`, of objects without `properties`; otherwise passed over"),
    "unevaluatedProperties": (
        _E,
        "`false` beside `allOf` and the like: if these declare named keys alone; a schema beside them is refused",
    ),
    "items": (_E, "a schema, or a list of them as in drafts up to 2019-09"),
    "prefixItems": (_E, ""),
    "additionalItems": (_E, "beside a list of `items`"),
    "unevaluatedItems": (_E, "where nothing else describes the array; otherwise refused"),
    "minItems": (_E, ""),
    "maxItems": (_E, ""),
    "minLength": (_E, ""),
    "maxLength": (_E, ""),
    "pattern": (_E, "ECMA-262; look-around, `\\b`, back references and anchors inside of texts are passed over"),
    "format": (_E, "of strings: the formats below; all others are passed over"),
    "minimum": (_E, "up to 2^53; a bound beyond it is enforced as far as that"),
    "maximum": (_E, "as `minimum`"),
    "exclusiveMinimum": (_E, "below 2^53, else as `minimum`; a boolean as in draft 4"),
    "exclusiveMaximum": (_E, "as `exclusiveMinimum`; a boolean as in draft 4"),
    "multipleOf": (
        _E,
        f"up to {MAX_MULTIPLE:,} in units of its last decimal; passed over beyond. `0.25` allows `0.50`, not `0.5`",
    ),
    "anyOf": (_E, ""),
    "oneOf": (_E, "as `anyOf`"),
    "allOf": (_E, ""),
    "$ref": (_E, "within the schema, by a JSON pointer"),
    "$defs": (_E, "targets of `$ref`"),
    "definitions": (_E, "targets of `$ref`"),
    "nullable": (_E, "OpenAPI 3.0: null is allowed too"),
    "uniqueItems": (_P, ""),
    "discriminator": (_P, "OpenAPI"),
    "contentEncoding": (_P, ""),
    "contentMediaType": (_P, ""),
    "contentSchema": (_P, ""),
    "title": (_P, "annotations: also `description`, `default`, `examples`, `deprecated`, `readOnly`, `writeOnly`"),
    "$schema": (_P, "chooses the draft, if it is known; also `$id`, `$anchor`, `$vocabulary`, `$comment`"),
    "not": (_R, "but `{}` and the booleans, which are enforced"),
    "if": (_R, "with `then` and `else`"),
    "contains": (_R, "with `minContains` and `maxContains`"),
    "dependentRequired": (_R, ""),
    "dependentSchemas": (_R, ""),
    "dependencies": (_R, ""),
    "$dynamicRef": (_R, ""),
    "$recursiveRef": (_R, ""),
}
"""Support of each keyword, with a remark for the documentation. Unknown keywords are passed over."""

REFUSED = frozenset(name for name, (support, _) in KEYWORDS.items() if support is _R)

_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")  # a schema for each name
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SINGLE = ("items", "additionalItems", "additionalProperties", "propertyNames", "unevaluatedProperties", "not")
_COMBINING = frozenset(["anyOf", "oneOf", "allOf", "$ref"])  # keywords with schemas for the same value
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_DEFINITIONS = ("$defs", "definitions", "components")  # keywords that hold the targets of ``$ref``
_TINY = 1e-15  # bounds nearer to zero exhaust the compiler
_PASSED_OVER = ("uniqueItems", "$dynamicAnchor", "$recursiveAnchor")  # the compiler refuses them
_DEPENDENT = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}  # void without it


def enforceable(schema: Schema, lenient: bool = False) -> dict[str, Any]:
    """Return a schema that the compiler enforces, and that allows every value that ``schema`` allows.

    Args:
        schema: a schema within the limits of ``check_schema``.
        lenient: leave out keywords that are refused; otherwise they stay, and the compiler names them.
    """
    rewritten = _Rewriting(lenient).schema(schema)
    assert isinstance(rewritten, dict)
    return rewritten


class _Rewriting:
    def __init__(self, lenient: bool) -> None:
        self._lenient = lenient

    def schema(self, value: Any) -> Any:
        """Return a rewritten schema; other values are returned unchanged."""
        if not isinstance(value, Mapping):
            return value
        node = {
            key: part for key, part in value.items() if key not in _PASSED_OVER and _DEPENDENT.get(key, key) in value
        }
        if self._lenient:
            node = {key: part for key, part in node.items() if key not in REFUSED or key == "not"}
        self._inside(node)
        for rewrite in (_one_of, _counts, _texts, _bounds, _multiple, _names, _unevaluated, _negation):
            rewrite(node)
        if self._lenient:
            node.pop("not", None)
        return _nullable(node)

    def _inside(self, node: dict[str, Any]) -> None:
        """Rewrite the schemas in a schema."""
        for key in _NAMED:
            if isinstance(node.get(key), Mapping):
                node[key] = {name: self.schema(part) for name, part in node[key].items()}
        for key in _LISTED:
            if isinstance(node.get(key), list | tuple):
                node[key] = [self.schema(part) for part in node[key]]
        for key in _SINGLE:
            if isinstance(node.get(key), Mapping):
                node[key] = self.schema(node[key])
        components = node.get("components")  # OpenAPI's definitions
        if isinstance(components, Mapping) and isinstance(components.get("schemas"), Mapping):
            schemas = {name: self.schema(part) for name, part in components["schemas"].items()}
            node["components"] = {**components, "schemas": schemas}


def _one_of(node: dict[str, Any]) -> None:
    """Write ``oneOf`` as ``anyOf``; a grammar cannot tell that a value fits one alternative alone."""
    if "oneOf" in node:
        choices = {"anyOf": node.pop("oneOf")}
        if "anyOf" in node:
            node["allOf"] = [*node.get("allOf", ()), choices]
        else:
            node |= choices


def _counts(node: dict[str, Any]) -> None:
    """Write counts as integers."""
    for key in _COUNTS:
        if isinstance(node.get(key), float) and node[key].is_integer():
            node[key] = int(node[key])


def _texts(node: dict[str, Any]) -> None:
    if isinstance(node.get("pattern"), str):
        node["pattern"] = to_rust(node["pattern"])
    if isinstance(node.get("patternProperties"), Mapping):
        node["patternProperties"] = {to_rust(name): part for name, part in node["patternProperties"].items()}
    if isinstance(node.get("format"), str) and node["format"] not in FORMATS:
        del node["format"]


def _bounds(node: dict[str, Any]) -> None:
    """Replace bounds that the compiler cannot express by weaker ones."""
    for key, round_out in _ROUNDINGS.items():
        if _is_number(node.get(key)):
            bound = round_out(node[key])
            if math.isinf(bound):
                del node[key]
            else:
                node[key] = bound
    for exclusive, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if node.get(exclusive) is True and plain not in node:
            del node[exclusive]


def _down(bound: float) -> float:
    """Return the largest lower bound up to ``bound`` that can be enforced, or minus infinity."""
    if bound > MAX_EXACT:
        return MAX_EXACT
    if bound < -MAX_EXACT:
        return -math.inf
    return bound if not bound or abs(bound) >= _TINY else 0 if bound > 0 else -_TINY


def _up(bound: float) -> float:
    return -_down(-bound)


_ROUNDINGS: dict[str, Callable[[float], float]] = {
    "minimum": _down,
    "exclusiveMinimum": _down,
    "maximum": _up,
    "exclusiveMaximum": _up,
}


def _multiple(node: dict[str, Any]) -> None:
    if "multipleOf" in node and not is_enforceable_multiple(node["multipleOf"]):
        del node["multipleOf"]


def is_enforceable_multiple(multiple: Any) -> bool:
    """Return False for a ``multipleOf`` that takes too many states: one for each unit of its last decimal."""
    if not _is_number(multiple) or multiple <= 0:
        return True  # the compiler reports what is wrong
    while multiple % 1 and multiple <= MAX_MULTIPLE:
        multiple *= 10
    return bool(multiple <= MAX_MULTIPLE)


def _names(node: dict[str, Any]) -> None:
    """Write a rule of an object's keys as properties or patterns, if nothing else describes keys."""
    names = node.pop("propertyNames", None)
    values = node.get("additionalProperties", True)
    if names is None or names is True or {"properties", "patternProperties"} & node.keys() or values is False:
        return
    if names is False:
        node["additionalProperties"] = False
        return
    listed = names.get("enum", [names["const"]] if "const" in names else None)
    if isinstance(listed, list | tuple):
        node["properties"] = {name: values for name in listed if isinstance(name, str)}
        node["additionalProperties"] = False
    elif isinstance(names.get("pattern"), str):
        node["patternProperties"] = {names["pattern"]: values}
        node["additionalProperties"] = False


def _unevaluated(node: dict[str, Any]) -> None:
    """Write ``unevaluated...`` as ``additional...``, if no other schema describes the same value."""
    properties, items = node.get("unevaluatedProperties"), node.get("unevaluatedItems")
    is_alone = not _COMBINING & node.keys()
    if isinstance(properties, bool) or (is_alone and isinstance(properties, Mapping)):
        del node["unevaluatedProperties"]
        if is_alone or properties is True:
            node.setdefault("additionalProperties", properties)
    if is_alone and isinstance(items, Mapping | bool):
        del node["unevaluatedItems"]
        if not isinstance(node.get("items"), list):
            node.setdefault("items", items)
        else:
            node.setdefault("additionalItems", items)


def _negation(node: dict[str, Any]) -> None:
    """Write the negation of everything, with which generators describe no value at all, as an empty list."""
    if node.get("not") in (True, {}):
        node["enum"] = []
        del node["not"]
    elif node.get("not") is False:
        del node["not"]


def _nullable(node: dict[str, Any]) -> dict[str, Any]:
    """Return a schema in which OpenAPI's ``nullable`` is a type or an alternative."""
    if node.pop("nullable", None) is not True:
        return node
    if isinstance(node.get("type"), str) and not (_COMBINING | {"enum", "const"}) & node.keys():
        return {**node, "type": [node["type"], "null"]}
    shared: dict[str, Any] = {key: node.pop(key) for key in _DEFINITIONS if key in node}
    return {**shared, "anyOf": [node, {"type": "null"}]}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
