"""Safetensors headers: an error, or tensors inside the file; files that follow the format's rules are accepted."""

import json
from collections.abc import Iterable
from math import prod
from typing import Any

from fuzz.files import scratch
from pumice.convert.safetensors import TYPES, read_safetensors
from pumice.errors import ConvertError

MODULES = ("pumice.convert.safetensors",)
_TEXTS = (
    *(f'"{name}"' for name in TYPES), '"dtype"', '"shape"', '"data_offsets"', '"__metadata__"', "[0,4]", "[]", "[1]",
    "null", "-1", "1e3", "18446744073709551616", "{}", "NaN", "\\u0000", "F4",
)  # fmt: skip
TOKENS = tuple(text.encode() for text in _TEXTS)


def seeds() -> Iterable[bytes]:
    yield _file({"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}, bytes(16))
    yield _file({"__metadata__": {"x": "pt"}, "s": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}}, bytes(8))
    entries, end = {}, 0
    for name, number in TYPES.items():
        size = 2 * number.dtype.itemsize
        entries[name] = {"dtype": name, "shape": [2], "data_offsets": [end, end + size]}
        end += size
    yield _file(entries, bytes(range(end)))
    yield _file({}, b"")


def _file(header: Any, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def check(data: bytes) -> None:
    try:
        tensors = read_safetensors(scratch("model.safetensors", data))
    except ConvertError as error:
        assert str(error).isprintable(), str(error)
        assert not _keeps_the_rules(data), f"refused: {error}"
        return
    for tensor in tensors.values():
        assert tensor.read().shape == tensor.shape


def _keeps_the_rules(data: bytes) -> bool:
    """Check the format's rules naively: tensors are adjacent, and none is empty."""
    n_header = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= n_header <= len(data) - 8:
        return False
    try:
        header = json.loads(data[8 : 8 + n_header], parse_constant=lambda _: 1 / 0)
        entries = [entry for name, entry in header.items() if name != "__metadata__"]
        places = sorted((*entry["data_offsets"], entry["dtype"], entry["shape"]) for entry in entries)
        position = 0
        for first, last, dtype, shape in places:
            numbers = [first, last, *shape]
            if any(type(number) is not int or number < 0 for number in numbers) or 0 in shape or first != position:
                return False
            if last - first != prod(shape) * TYPES[dtype].dtype.itemsize:
                return False
            position = last
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return False
    return position == len(data) - 8 - n_header
