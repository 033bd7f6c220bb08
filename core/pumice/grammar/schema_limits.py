"""The limits of a JSON schema and of the regular expressions in it, checked on plain data: nothing is compiled."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pumice.errors import RequestError
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

_COUNTS = frozenset(["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"])
_DEFINITIONS = frozenset(["$defs", "definitions"])  # which count only where a reference leads to them
_NOTES = frozenset(["title", "description", "$comment", "default", "examples"])  # of which nothing is compiled
_OPTIONS = "x-guidance"  # of llguidance: how it compiles is not for a client to say
_REGEX_PART = re.compile(
    r"\\.|\[(?:\\.|[^\\\]])*+(?:\]|\\?\Z)|(?P<open>\()|(?P<close>\))|\{(?P<least>\d+)(?:,(?P<most>\d*))?\}", re.DOTALL
)


@dataclass(eq=False, slots=True)
class _Place:
    """A value in a schema, and where it stands."""

    value: Any
    key: str
    outer: _Place | None = None
    depth: int = 0

    def inner(self) -> Iterator[_Place]:
        if isinstance(self.value, Mapping):
            return (_Place(value, str(key), self, self.depth + 1) for key, value in self.value.items())
        values = self.value if isinstance(self.value, list | tuple) else ()
        return (_Place(value, str(number), self, self.depth + 1) for number, value in enumerate(values))

    def __str__(self) -> str:
        keys, place = list[str](), self
        while place.outer:
            keys.append(place.key[:40] if place.key.isprintable() else ascii(place.key[:40]))
            place = place.outer
        return f"{place.key}{': ' * bool(keys)}{'.'.join(keys[::-1])}"


def check_schema(name: str, schema: Any) -> None:
    """Raise RequestError, which begins with ``name``, for a schema beyond a limit.

    A schema that is wrong otherwise, or refers to what is not there, is left to the compiler.
    """
    waiting, n_values = [_Place(schema, name)], 0
    while waiting:
        place, n_values = waiting.pop(), n_values + 1
        check_number(name, "values", n_values, MAX_VALUES)
        if place.depth > MAX_DEPTH:
            raise RequestError(f"{name}: it is nested more than {MAX_DEPTH} levels deep")
        _check_value(place)
        waiting += place.inner()
    check_chain(name, "references", schema, lambda value: _parts(value, schema), id)


def check_regex(place: object, regex: str) -> None:
    """Raise RequestError for a regular expression beyond a limit."""
    check_number(str(place), "characters of a regular expression", len(regex), MAX_TEXT)
    depth = 0
    for part in _REGEX_PART.finditer(regex):
        depth += bool(part["open"]) - bool(part["close"])
        if depth > MAX_DEPTH:
            raise RequestError(f"{place}: a regular expression has more than {MAX_DEPTH} levels of parentheses")
        if part["least"]:
            most = max(int(count[:20] or 0) for count in (part["least"], part["most"] or ""))
            check_number(str(place), "repetitions", most, MAX_COUNT)


def _check_value(place: _Place) -> None:
    value = place.value
    if isinstance(value, Mapping):
        _check_object(place, value)
    elif isinstance(value, list | tuple):
        if len(value) > MAX_ELEMENTS:
            check_number(str(place), "entries", len(value), MAX_ELEMENTS)
    elif isinstance(value, str):
        if place.key == "pattern":
            check_regex(place, value)
        elif len(value) > MAX_TEXT and place.key not in _NOTES:
            check_number(str(place), "characters", len(value), MAX_TEXT)
    elif isinstance(value, float) and not math.isfinite(value):
        raise RequestError(f"{place}: {value!r} is not a number of JSON")
    elif place.key == "multipleOf" and isinstance(value, int | float) and value > MAX_MULTIPLE:
        raise RequestError(f"{place}: {value!r:.20} is too large; at most {MAX_MULTIPLE} is allowed")
    elif place.key in _COUNTS and isinstance(value, int | float) and not 0 <= value <= MAX_COUNT:
        raise RequestError(f"{place}: {value!r:.20} is out of range; 0 to {MAX_COUNT} are allowed")


def _check_object(place: _Place, value: Mapping[str, Any]) -> None:
    is_properties = place.key in ("properties", "patternProperties")
    most, what = (MAX_PROPERTIES, "properties") if is_properties else (MAX_ELEMENTS, "entries")
    if len(value) > most:
        check_number(str(place), what, len(value), most)
    if _OPTIONS in value and not is_properties:
        raise RequestError(f"{place}: unknown keyword {_OPTIONS!r}: leave it out")
    for key in value:
        if len(key) > MAX_TEXT:
            check_number(str(place), "characters of a name", len(key), MAX_TEXT)
        if place.key == "patternProperties":
            check_regex(place, key)


def _parts(value: Any, schema: Any) -> Iterator[Any]:
    """The values in a value of a schema, and that to which it refers."""
    if isinstance(value, Mapping):
        yield from (part for key, part in value.items() if key not in _DEFINITIONS and isinstance(part, dict | list))
        target = referred(value.get("$ref"), schema)
        if isinstance(target, Mapping):
            yield target
    elif isinstance(value, list | tuple):
        yield from (part for part in value if isinstance(part, dict | list))


def referred(reference: Any, schema: Any) -> Any:
    """What a reference within a schema names; None if there is nothing."""
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
