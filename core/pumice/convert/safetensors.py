"""Read safetensors files. Files are mapped, and tensors read when used.

Layout from the specification (https://github.com/huggingface/safetensors): the header's length in 64 bits, the header
as JSON with type, shape and offsets of each tensor, and the data. The package safetensors cannot read BF16 into NumPy.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.convert.lazy import LazyTensor
from pumice.errors import ConvertError
from pumice.gguf import GGMLType
from pumice.wording import json_problem

MAX_HEADER_BYTES = 100_000_000  # limit of the specification


@dataclass(frozen=True)
class NumberType:
    """A type of the format: its NumPy type, and the GGUF type that stores it."""

    dtype: np.dtype[Any]
    kind: GGMLType = GGMLType.F32

    floats: Callable[[NDArray[Any]], NDArray[np.float32]] | None = None
    """Converts stored codes to values, for types that NumPy does not have."""

    def numbers(self, raw: NDArray[Any]) -> NDArray[Any]:
        """Return float32, or the stored integers."""
        if self.floats is not None:
            return self.floats(raw)
        return raw if raw.dtype.kind in "iu" else raw.astype(np.float32)


def _bfloat16(raw: NDArray[Any]) -> NDArray[np.float32]:
    return (raw.astype(np.uint32) << 16).view(np.float32)


def _e4m3(raw: NDArray[Any]) -> NDArray[np.float32]:
    """Decode 8-bit floats with 4 exponent bits; the largest code of each sign is NaN (OCP 8-bit Floating Point 1.0)."""
    codes = np.arange(128, dtype=np.float32)
    exponent, fraction = codes // 8, codes % 8 / 8
    values = np.where(exponent > 0, np.exp2(exponent - 7) * (1 + fraction), np.exp2(np.float32(-6)) * fraction)
    values[-1] = np.nan
    return np.concatenate([values, -values]).astype(np.float32)[raw]


def _e5m2(raw: NDArray[Any]) -> NDArray[np.float32]:
    """Decode 8-bit floats with 5 exponent bits, which are the upper half of float16."""
    return (raw.astype(np.uint16) << 8).view(np.float16).astype(np.float32)


def _e8m0(raw: NDArray[Any]) -> NDArray[np.float32]:
    """Decode biased exponents to powers of two."""
    return np.exp2(raw.astype(np.float32) - 127)


TYPES = {
    "F64": NumberType(np.dtype("<f8")),
    "F32": NumberType(np.dtype("<f4")),
    "F16": NumberType(np.dtype("<f2"), GGMLType.F16),
    "BF16": NumberType(np.dtype("<u2"), GGMLType.BF16, _bfloat16),
    "F8_E4M3": NumberType(np.dtype("u1"), floats=_e4m3),
    "F8_E5M2": NumberType(np.dtype("u1"), floats=_e5m2),
    "F8_E8M0": NumberType(np.dtype("u1"), floats=_e8m0),
    "I64": NumberType(np.dtype("<i8")),
    "I32": NumberType(np.dtype("<i4")),
    "I16": NumberType(np.dtype("<i2")),
    "I8": NumberType(np.dtype("i1")),
    "U32": NumberType(np.dtype("<u4")),
    "U8": NumberType(np.dtype("u1")),
    "BOOL": NumberType(np.dtype("u1")),
}

MAX_NAME = 512  # characters of a tensor's name; published ones have a fifth as many


def read_safetensors(path: Path) -> dict[str, LazyTensor]:
    """Return the tensors of a file by name. Raises ConvertError, which names file and tensor, if it is invalid."""
    buffer = map_file(path)
    n_header = int.from_bytes(buffer[:8], "little") if len(buffer) >= 8 else 0
    if not 2 <= n_header <= min(MAX_HEADER_BYTES, len(buffer) - 8):
        raise ConvertError(f"{path}: not a complete safetensors file: its header has {n_header} bytes")
    try:
        header = json.loads(buffer[8 : 8 + n_header])
    except (ValueError, RecursionError) as error:
        raise ConvertError(f"{path}: the header is not valid JSON: {json_problem(error)}") from None
    if not isinstance(header, dict):
        raise ConvertError(f"{path}: the header is not a JSON object")
    start = 8 + n_header
    return {name: _tensor(path, buffer, start, name, item) for name, item in header.items() if name != "__metadata__"}


def map_file(path: Path) -> mmap:
    """Map a file. Raises ConvertError if it cannot be read, or is empty."""
    try:
        with path.open("rb") as file:
            return mmap(file.fileno(), 0, access=ACCESS_READ)
    except OSError as error:
        raise ConvertError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError:
        raise ConvertError(f"{path}: the file is empty") from None


def _tensor(path: Path, buffer: mmap, start: int, name: str, entry: Any) -> LazyTensor:
    where = f"{path}: tensor {name!r:.100}"
    if len(name) > MAX_NAME:
        raise ConvertError(f"{where}: its name has {len(name)} characters; at most {MAX_NAME} are read")
    try:
        dtype, shape, (first, last) = str(entry["dtype"]), tuple(entry["shape"]), entry["data_offsets"]
        if any(type(number) is not int for number in (*shape, first, last)):
            raise ValueError
    except (TypeError, KeyError, ValueError):
        raise ConvertError(f"{where}: its entry lacks dtype, shape or data_offsets") from None
    if dtype not in TYPES:
        raise ConvertError(f"{where}: unknown type {dtype!r:.60}; only {', '.join(TYPES)} can be converted")
    number = TYPES[dtype]
    if min(shape, default=1) < 1 or last - first != prod(shape) * number.dtype.itemsize:
        raise ConvertError(f"{where}: {last - first} bytes do not fit {dtype} {list(shape)}")
    if not 0 <= first <= last <= len(buffer) - start:
        raise ConvertError(f"{where}: its data ends after the end of the file; is the file complete?")
    return LazyTensor(shape, number.kind, partial(_read, buffer, start + first, shape, number))


def _read(buffer: mmap, offset: int, shape: tuple[int, ...], number: NumberType) -> NDArray[Any]:
    return number.numbers(np.frombuffer(buffer, number.dtype, prod(shape), offset)).reshape(shape)
