"""Read the tensors of CTranslate2's ``model.bin``. The file is mapped, and tensors are read when used.

Layout from CTranslate2's source (``src/models/model.cc``): numbers are little-endian, texts have their length in 16
bits and end with a zero byte. After version, name of the model and its revision come the tensors, each with its name,
rank, dimensions, type and bytes, and then the other names of some of them.
"""

from __future__ import annotations

from functools import partial
from math import prod
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.convert.lazy import LazyTensor
from pumice.convert.safetensors import TYPES, NumberType, map_file
from pumice.errors import ConvertError

MODEL = "model.bin"
VERSION = 6  # of the format, since CTranslate2 2.0
MOST_NAME = 512  # bytes of a tensor's name
MOST_TENSORS = 1 << 20
# Types by their numbers.
NUMBERS = {0: TYPES["F32"], 1: TYPES["I8"], 2: TYPES["I16"], 3: TYPES["I32"], 4: TYPES["F16"], 5: TYPES["BF16"]}
SCALE = "_scale"  # behind the name of a matrix of int8: the factor of each row by which its values were multiplied


class _Cursor:
    """Reads a mapped file from its start on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.buffer: mmap = map_file(path)
        self.place = 0

    def number(self, n_bytes: int) -> int:
        return int.from_bytes(self.take(n_bytes), "little")

    def text(self) -> str:
        n = self.number(2)
        if not 1 <= n <= MOST_NAME:
            raise ConvertError(f"{self.path}: a name at byte {self.place} has {n} bytes; is this CTranslate2's file?")
        return self.take(n).rstrip(b"\0").decode("utf-8", "replace")

    def take(self, n_bytes: int) -> bytes:
        start = self.skip(n_bytes)
        return self.buffer[start : self.place]

    def skip(self, n_bytes: int) -> int:
        """Skip bytes, and return the place of the first of them."""
        start, self.place = self.place, self.place + n_bytes
        if self.place > len(self.buffer):
            raise ConvertError(f"{self.path}: the file ends at byte {len(self.buffer)}; is it complete?")
        return start


def read_ctranslate2(path: Path) -> tuple[str, dict[str, LazyTensor]]:
    """Return the name of the model's class, such as ``WhisperSpec``, and its tensors by name.

    Matrices of int8 are multiplied by their scales. Raises ConvertError for an invalid file.
    """
    cursor = _Cursor(path)
    version = cursor.number(4)
    if version != VERSION:
        raise ConvertError(f"{path}: version {version} of CTranslate2's format; only version {VERSION} can be read")
    model, _ = cursor.text(), cursor.number(4)
    n_tensors = cursor.number(4)
    if n_tensors > MOST_TENSORS:
        raise ConvertError(f"{path}: {n_tensors} tensors exceed the limit of {MOST_TENSORS}")
    tensors = dict(_tensor(cursor) for _ in range(n_tensors))
    for _ in range(min(cursor.number(4), MOST_TENSORS)):
        alias, name = cursor.text(), cursor.text()
        if name in tensors:
            tensors[alias] = tensors[name]
    return model, {name: _scaled(path, tensors, name) for name in tensors if not name.endswith(SCALE)}


def _tensor(cursor: _Cursor) -> tuple[str, LazyTensor]:
    name = cursor.text()
    shape = tuple(cursor.number(4) for _ in range(cursor.number(1)))
    kind, n_bytes = cursor.number(1), cursor.number(4)
    start = cursor.skip(n_bytes)
    number = NUMBERS.get(kind)
    if number is None or n_bytes != prod(shape) * number.dtype.itemsize:
        raise ConvertError(f"{cursor.path}: tensor {name!r}: {n_bytes} bytes do not fit type {kind} {list(shape)}")
    return name, LazyTensor(shape, number.kind, partial(_read, cursor.buffer, start, shape, number))


def _read(buffer: mmap, start: int, shape: tuple[int, ...], number: NumberType) -> NDArray[Any]:
    return number.numbers(np.frombuffer(buffer, number.dtype, prod(shape), start)).reshape(shape)


def _scaled(path: Path, tensors: dict[str, LazyTensor], name: str) -> LazyTensor:
    """Return a tensor, divided by its scales if it has any."""
    tensor, scale = tensors[name], tensors.get(name + SCALE)
    if scale is None:
        return tensor
    if scale.shape not in ((), (1,), tensor.shape[:1]):
        raise ConvertError(f"{path}: tensor {name!r}: scales {list(scale.shape)} do not fit {list(tensor.shape)}")

    def divided(values: NDArray[Any]) -> NDArray[np.float32]:
        return values.astype(np.float32) / scale.read().astype(np.float32).reshape(-1, *[1] * (values.ndim - 1))

    return tensor.map(divided)
