"""GGUF metadata values: encoded values are read back with their types; values that do not fit a type are errors."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from fuzz.draw import Draw
from fuzz.targets.gguf import equal
from pumice.errors import GGUFError
from pumice.gguf.metadata import make_metadata
from pumice.gguf.values import DTYPES, ValueType, encode, parse_value, type_names

MODULES = ("pumice.gguf.values", "pumice.gguf.metadata")
MAX_LEN = 200
TOKENS = (b"true", b"1e-5", b"[1, 2]", b'["a"]', b"NaN", b"Infinity", b"-1", b"4294967296", b"null", b"{}")

_TYPES = [*type_names(), *(f"{name}[]" for name in type_names()), "arr", "", "U32", "x"]


def seeds() -> Iterable[bytes]:
    for kind in range(4):
        for number in range(len(_TYPES)):
            yield bytes([kind, number]) + b"[1, 2, 300]"
            yield bytes([kind, number, 5, 3]) + b"\2\7abc\x05\1\2\3\4\5\6\7\x08"


def check(data: bytes) -> None:
    draw = Draw(data)
    kind, type_name = draw.below(4), draw.choice(_TYPES)
    try:
        if kind == 0:
            encoded = parse_value(draw.rest().decode(errors="replace"), type_name)
        elif kind == 1:
            encoded = encode(draw.json(), type_name)
        elif kind == 2:
            encoded = encode(draw.json())
        else:
            array = np.frombuffer(draw.bytes(draw.left // 8 * 8), draw.choice(list(DTYPES.values())))
            encoded = encode(array)
            assert equal(_read(encoded), array) or array.dtype == np.bool_
            return
    except GGUFError as error:
        assert str(error).isprintable()
        return
    value = _read(encoded)
    assert isinstance(encoded.type, ValueType)
    again = encode(value, encoded.type_name) if encoded.type is not ValueType.ARR or len(value) else encoded
    assert again == encoded


def _read(encoded: Any) -> Any:
    return make_metadata({"key": encoded})["key"]
