"""Encode metadata values: GGUF's types, their names and layouts.

Numbers and layouts follow the GGUF specification (ggml, `docs/gguf.md`); names are those that llama.cpp prints.
"""

import builtins
import json
import struct
from enum import IntEnum
from struct import Struct, pack
from typing import Any, NamedTuple

import numpy as np

from pumice.errors import GGUFError
from pumice.wording import show_python


class ValueType(IntEnum):
    """The type of a metadata value."""

    U8 = 0
    I8 = 1
    U16 = 2
    I16 = 3
    U32 = 4
    I32 = 5
    F32 = 6
    BOOL = 7
    STR = 8
    ARR = 9
    U64 = 10
    I64 = 11
    F64 = 12


_LETTERS = dict(zip(ValueType, "BbHhIif?__Qqd", strict=True))  # of struct
LAYOUTS: dict[int, Struct] = {type: Struct("<" + letter) for type, letter in _LETTERS.items() if letter != "_"}
DTYPES: dict[int, np.dtype[Any]] = {type: np.dtype("<" + letter) for type, letter in _LETTERS.items() if letter != "_"}


_LENGTH = Struct("<Q").pack  # of a text


class EncodedValue(NamedTuple):
    """A value as stored in a file: its type, and the bytes that follow the type."""

    type: ValueType
    data: bytes

    @property
    def type_name(self) -> str:
        """``u32``, or for an array ``u32[]``."""
        if self.type is not ValueType.ARR:
            return self.type.name.lower()
        return ValueType(int.from_bytes(self.data[:4], "little")).name.lower() + "[]"


def encode(value: Any, type_name: str | None = None) -> EncodedValue:
    """Encode a Python value or a NumPy array.

    Without a type name, integers become u32, or i32, u64 or i64 if they do not fit, floats become f32, and NumPy arrays
    keep their type.

    Raises:
        GGUFError: the value does not fit the type.
    """
    if isinstance(value, EncodedValue):
        return value
    name = type_name or _type_name(value)
    item = name.removesuffix("[]")
    if item.lower() not in type_names():
        raise GGUFError(f"unknown metadata type {name!r}; types are {', '.join(type_names())}, and [] after one")
    type = ValueType[item.upper()]
    try:
        return (
            EncodedValue(ValueType.ARR, _array(value, type))
            if name != item
            else EncodedValue(type, _scalar(value, type))
        )
    except (ValueError, TypeError, OverflowError):
        raise GGUFError(f"{show_python(value)} is not a value of type {name}") from None


def parse_value(text: str, type_name: str) -> EncodedValue:
    """Encode a value from user input: strings as they are, other values as JSON (``true``, ``1e-5``, ``[1, 2]``)."""
    if type_name == "str":
        return encode(text, type_name)
    try:
        return encode(json.loads(text), type_name)
    except (ValueError, RecursionError):
        raise GGUFError(f"{show_python(text)} is not a value of type {type_name}") from None


def type_names() -> list[str]:
    """Return the names of the scalar types."""
    return [type.name.lower() for type in ValueType if type is not ValueType.ARR]


def _type_name(value: Any) -> str:
    if isinstance(value, np.ndarray):
        for number, dtype in DTYPES.items():
            if value.dtype == dtype:
                return ValueType(number).name.lower() + "[]"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        if not value:
            raise GGUFError("the type of an empty array must be given")
        return _integers(value) + "[]" if all(type(item) is int for item in value) else _type_name(value[0]) + "[]"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return _integers([value])
    if isinstance(value, float):
        return "f32"
    if isinstance(value, str | bytes):
        return "str"
    raise GGUFError(f"metadata cannot hold a value of type {type(value).__name__}")


def _integers(values: list[int] | tuple[int, ...]) -> str:
    low, high = min(values), max(values)
    if low >= 0:
        return "u32" if high < 1 << 32 else "u64"
    return "i32" if low >= -(1 << 31) and high < 1 << 31 else "i64"


def _scalar(value: Any, type: ValueType) -> bytes:
    if type is ValueType.STR:
        if not isinstance(value, str | bytes):
            raise TypeError
        raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
        return pack("<Q", len(raw)) + raw
    if isinstance(value, np.generic):
        value = value.item()
    is_number = isinstance(value, int if DTYPES[type].kind in "iu" else int | float) and not isinstance(value, bool)
    if not (isinstance(value, bool) if type is ValueType.BOOL else is_number):
        raise TypeError
    try:
        return LAYOUTS[type].pack(value)
    except Exception:  # struct.error is not a ValueError
        raise ValueError from None


def _array(value: Any, type: ValueType) -> bytes:
    if isinstance(value, np.ndarray) and value.dtype == DTYPES.get(type):
        items = value.tobytes()
    elif isinstance(value, list | tuple | np.ndarray):
        items = _items(value, type)
    else:
        raise TypeError
    return pack("<IQ", type, len(value)) + items


def _items(values: Any, type: ValueType) -> bytes:
    """Encode the items of an array, at once if they are Python's own numbers or texts, as in vocabularies."""
    kinds = set(map(builtins.type, values))
    if kinds == {str} and type is ValueType.STR:
        raws = [text.encode("utf-8", "surrogateescape") for text in values]
        return b"".join([_LENGTH(len(raw)) + raw for raw in raws])
    allowed: set[builtins.type] = {int} if type in DTYPES and DTYPES[type].kind in "iu" else {int, float}
    if type not in (ValueType.STR, ValueType.BOOL) and kinds <= allowed:
        try:
            return pack(f"<{len(values)}{_LETTERS[type]}", *values)
        except struct.error:
            raise ValueError from None
    return b"".join(_scalar(item, type) for item in values)
