"""Check the limits of a JSON schema and of the regular expressions in it, without compiling them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pumice.errors import RequestError
from pumice.grammar.keywords import is_enforceable_multiple
from pumice.grammar.limits import (
    MAX_COUNT,
    MAX_DEPTH,
    MAX_ELEMENTS,
    MAX_MULTIPLE,
    MAX_PROPERTIES,
    MAX_TEXT,
    MAX_VALUES,
    check_chain,
    check_number,
)
from pumice.wording import show_value

_COUNTS = frozenset(["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"])
_DEFINITIONS = frozenset(["$defs", "definitions"])  # counted only if a reference leads to them
_NOTES = frozenset(["title", "description", "$comment", "default", "examples"])  # not compiled
_OPTIONS = "x-guidance"  # llguidance's compiler options, which clients must not set
_REGEX_PART = re.compile(
    r"\\.|\[(?:\\.|[^\\\]])*+(?:\]|\\?\Z)|(?P<open>\()|(?P<close>\))|\{(?P<least>\d+)(?:,(?P<most>\d*))?\}", re.DOTALL
)


@dataclass(eq=False, slots=True)
class _Node:
    """A value within a schema; ``str`` gives its path."""

    value: Any
    key: str
    outer: _Node | None = None
    depth: int = 0

    def inner(self) -> Iterator[_Node]:
        if isinstance(self.value, Mapping):
            return (_Node(value, str(key), self, self.depth + 1) for key, value in self.value.items())
        values = self.value if isinstance(self.value, list | tuple) else ()
        return (_Node(value, str(number), self, self.depth + 1) for number, value in enumerate(values))

    def __str__(self) -> str:
        keys, node = list[str](), self
        while node.outer:
            keys.append(node.key[:40] if node.key.isprintable() else ascii(node.key[:40]))
            node = node.outer
        return f"{node.key}{': ' * bool(keys)}{'.'.join(keys[::-1])}"


def check_schema(name: str, schema: Any, compiled_as_is: bool = False) -> None:
    """Raise RequestError if a schema exceeds a limit; ``name`` begins the error.

    ``compiled_as_is``: the schema is not rewritten by ``enforceable``, which leaves out large multiples.
    Other problems, such as missing targets of references, are left to the compiler.
    """
    waiting, n_values = [_Node(schema, name)], 0
    while waiting:
        node, n_values = waiting.pop(), n_values + 1
        check_number(name, "values", n_values, MAX_VALUES)
        if node.depth > MAX_DEPTH:
            raise RequestError(f"{name}: nested deeper than {MAX_DEPTH} levels")
        _check_value(node)
        if compiled_as_is and node.key == "multipleOf" and not is_enforceable_multiple(node.value):
            raise RequestError(f"{node}: {show_value(node.value, 20)} is too large; at most {MAX_MULTIPLE} is allowed")
        waiting += node.inner()
    check_chain(name, "references", schema, lambda value: _parts(value, schema), id)


def check_regex(where: object, regex: str) -> None:
    """Raise RequestError if a regular expression exceeds a limit; ``where`` begins the error."""
    check_number(str(where), "characters of a regular expression", len(regex), MAX_TEXT)
    depth = 0
    for part in _REGEX_PART.finditer(regex):
        depth += bool(part["open"]) - bool(part["close"])
        if depth > MAX_DEPTH:
            raise RequestError(f"{where}: a regular expression has more than {MAX_DEPTH} levels of parentheses")
        if part["least"]:
            most = max(int(count[:20] or 0) for count in (part["least"], part["most"] or ""))
            check_number(str(where), "repetitions", most, MAX_COUNT)


def _check_value(node: _Node) -> None:
    value = node.value
    if isinstance(value, Mapping):
        _check_object(node, value)
    elif isinstance(value, list | tuple):
        if len(value) > MAX_ELEMENTS:
            check_number(str(node), "entries", len(value), MAX_ELEMENTS)
    elif isinstance(value, str):
        if node.key == "pattern":
            check_regex(node, value)
        elif len(value) > MAX_TEXT and node.key not in _NOTES:
            check_number(str(node), "characters", len(value), MAX_TEXT)
    elif isinstance(value, float) and not math.isfinite(value):
        raise RequestError(f"{node}: {value!r} is not a JSON number")
    elif node.key in _COUNTS and isinstance(value, int | float) and not 0 <= value <= MAX_COUNT:
        raise RequestError(f"{node}: {show_value(value, 20)} is out of range; 0 to {MAX_COUNT} are allowed")


def _check_object(node: _Node, value: Mapping[str, Any]) -> None:
    is_properties = node.key in ("properties", "patternProperties")
    most, what = (MAX_PROPERTIES, "properties") if is_properties else (MAX_ELEMENTS, "entries")
    if len(value) > most:
        check_number(str(node), what, len(value), most)
    if _OPTIONS in value and not is_properties:
        raise RequestError(f"{node}: unknown keyword {_OPTIONS!r}; remove it")
    for key in value:
        if len(key) > MAX_TEXT:
            check_number(str(node), "characters of a name", len(key), MAX_TEXT)
        if node.key == "patternProperties":
            check_regex(node, key)


def _parts(value: Any, schema: Any) -> Iterator[Any]:
    """Yield the values inside a value of a schema, and the target of its reference."""
    if isinstance(value, Mapping):
        yield from (part for key, part in value.items() if key not in _DEFINITIONS and isinstance(part, dict | list))
        target = referred(value.get("$ref"), schema)
        if isinstance(target, Mapping):
            yield target
    elif isinstance(value, list | tuple):
        yield from (part for part in value if isinstance(part, dict | list))


def referred(reference: Any, schema: Any) -> Any:
    """Return the target of a reference within a schema; None if it does not exist."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    value = schema
    for key in filter(None, reference[1:].split("/")):
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list) and key.isascii() and key.isdigit() and len(key) < 10:
            value = value[int(key)] if int(key) < len(value) else None
        else:
            return None
    return value
