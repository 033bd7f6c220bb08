"""Read settings of files and calls by the option of each key, and dataclasses by the annotations of their fields."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pumice.errors import ConfigError
from pumice.options.option import Option, describe_type, read_parameter
from pumice.wording import JsonRepr, did_you_mean, printable

T = TypeVar("T")

SHORTHAND = "SHORTHAND"
"""Class attribute of a dataclass: the field for which a text in place of a mapping stands."""


@cache
def fields_of(kind: type) -> Mapping[str, Option]:
    """Return the options of a dataclass's fields by their keys in files: ``key`` of the metadata, or the name."""
    hints = get_type_hints(kind, include_extras=True)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    return {field.metadata.get("key", field.name): read_parameter(field.name, hints[field.name]) for field in fields}


def check_finite(value: float | None) -> None:
    """Raise ValueError for an infinite number."""
    if value is not None and not math.isfinite(value):
        raise ValueError("a finite number")


class SettingsReader:
    """Reads settings of one source, and names it, the key, what was expected and the value in its errors.

    Args:
        source: Path of a file, or another name.
        partial: Accept records without all of their keys, as a layer of the configuration has them.
        ignore_unknown: Pass over unknown keys of records.
    """

    def __init__(self, source: str, *, partial: bool = False, ignore_unknown: bool = False) -> None:
        self.source = source
        self._partial = partial
        self._ignore_unknown = ignore_unknown

    def record(self, kind: type[T], value: object, path: str = "") -> T:
        """Return a mapping as a dataclass. Raises ConfigError."""
        values = self.values(kind, value, path)
        for field in dataclasses.fields(kind):  # type: ignore[arg-type]
            if field.default is field.default_factory is dataclasses.MISSING and field.name not in values:
                raise ConfigError(f"{self._place(path)}: the key {field.name!r} is missing")
        return kind(**values)

    def values(self, kind: type, value: object, path: str = "") -> dict[str, Any]:
        """Return the values of the keys that a mapping has by the names of a dataclass's fields. Raises ConfigError."""
        if isinstance(value, str) and hasattr(kind, SHORTHAND):
            value = {getattr(kind, SHORTHAND): value}
        if not isinstance(value, Mapping):
            raise self._error(path, "a mapping", value)
        options = fields_of(kind)
        values: dict[str, Any] = {}
        for key, item in value.items():
            if key in options:
                values[options[key].name] = self.value(options[key], item, _joined(path, key))
            elif not self._ignore_unknown:
                hint = did_you_mean(str(key), options) or f" (known: {', '.join(options)})"
                raise ConfigError(f"{self.source}: unknown key {_joined(path, str(key))!r}{hint}")
        return values

    def value(self, option: Option, value: object, path: str) -> Any:
        """Return the value of an option. Raises ConfigError."""
        if option.unit and isinstance(value, str):
            try:
                value = option.size(value)
            except ConfigError:
                raise self._error(path, option.expected, value) from None
        value = self._read(option.type, value, path, option.expected)
        if not option.is_within(value):
            raise self._error(path, option.expected, value)
        if option.rule is not None:
            try:
                option.rule(value)
            except ValueError as error:
                raise self._error(path, str(error), value) from None
        return value

    def _read(self, hint: Any, value: object, path: str, expected: str) -> Any:
        if get_origin(hint) is Annotated:
            return self.value(read_parameter("", hint), value, path)
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            return self.values(hint, value, path) if self._partial else self.record(hint, value, path)
        if isinstance(hint, type) and issubclass(hint, PurePath) and isinstance(value, str):
            return hint(value)
        if isinstance(hint, type) and issubclass(hint, Enum):
            try:
                return hint(value)
            except ValueError:
                raise self._error(path, expected, value) from None
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType):
            members = [member for member in arguments if member is not NoneType]
            if len(members) == 1 and value is not None:
                return self._read(members[0], value, path, expected)
        if origin is Literal and isinstance(value, bool) and {"on", "off"} <= {*arguments}:
            return "on" if value else "off"  # YAML reads these words as booleans
        if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
            return self._read_mapping(arguments[1], value, path)
        if origin in (list, tuple) and isinstance(value, (list, tuple)):
            return self._read_items(hint, value, path, expected)
        if not Option(None, type=hint).fits(value):
            raise self._error(path, expected, value)
        return float(value) if hint is float else value  # type: ignore[arg-type]

    def _read_mapping(self, hint: Any, value: Mapping[Any, Any], path: str) -> dict[str, Any]:
        for key in value:
            if not isinstance(key, str):
                raise ConfigError(f"{self._place(path)}: keys should be strings, not {show_setting(key)}")
        expected = describe_type(hint)
        return {key: self._read(hint, item, _joined(path, key), expected) for key, item in value.items()}

    def _read_items(self, hint: Any, value: list[Any] | tuple[Any, ...], path: str, expected: str) -> Any:
        hints = get_args(hint)
        if get_origin(hint) is list or hints[-1] is Ellipsis:
            hints = hints[:1] * len(value)
        if len(hints) != len(value):
            raise self._error(path, expected, value)
        items = [
            self._read(item_hint, item, _joined(path, str(number)), describe_type(item_hint))
            for number, (item_hint, item) in enumerate(zip(hints, value, strict=True))
        ]
        return get_origin(hint)(items)

    def _error(self, path: str, expected: str, value: object) -> ConfigError:
        return ConfigError(f"{self._place(path)}: should be {expected}, not {show_setting(value)}")

    def _place(self, path: str) -> str:
        return f"{self.source}: {printable(path)}" if path else self.source


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def show_setting(value: object) -> str:
    """Return a wrong value for a message, shortened; YAML's aliases can nest lists deeply."""
    short = JsonRepr()
    short.maxlevel, short.maxstring, short.maxother = 2, 100, 100
    return short.repr(value)
