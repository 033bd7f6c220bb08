"""The header of a model's file, sent by its engine or a reader, since a server does not open models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np

from pumice.engine.messages import EngineMessage, Name
from pumice.errors import EngineError, ModelError
from pumice.gguf.metadata import MAX_STRINGS, Metadata
from pumice.gguf.strings import PackedStrings, StringArray
from pumice.gguf.values import DTYPES
from pumice.model_files.summary import Summary

MAX_HEADER_BYTES: Final = 60 << 20  # large vocabularies with their merges take 10 MiB
_WRONG = "the engine's process sent {!r:.80} with a wrong type: the model's file may be damaged"
_DTYPES = {dtype.str: dtype for dtype in DTYPES.values()}


class Strings(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """A list of texts, which need not be valid UTF-8: their lengths as uint32, and all bytes."""

    lengths: bytes
    data: bytes


class PackedArray(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    dtype: Name
    data: bytes


class Header(EngineMessage, frozen=True):
    """The header of a model: ``metadata`` without nested arrays, and ``summary`` without metadata."""

    metadata: dict[Name, bool | int | float | str | Strings | PackedArray]
    summary: Summary

    @classmethod
    def of(cls, metadata: Mapping[str, Any], summary: Summary) -> Header:
        """Make a header. Raises ModelError if the metadata is too large to be sent."""
        stored = metadata.stored if isinstance(metadata, Metadata) else metadata.__getitem__
        wire_metadata = {key: value for key in metadata if (value := _to_wire(stored(key))) is not None}
        size = sum(len(key) + _size(value) for key, value in wire_metadata.items())
        if size > MAX_HEADER_BYTES:
            raise ModelError(f"the file's metadata takes {size} bytes, but the limit is {MAX_HEADER_BYTES}")
        return cls(wire_metadata, replace(summary, metadata={}))

    def read(self) -> tuple[Metadata, Summary]:
        """Return metadata and summary. Raises EngineError if the metadata is invalid."""
        metadata = {key: _from_wire(key, value) for key, value in self.metadata.items()}
        scalars = {key: value for key, value in metadata.items() if isinstance(value, str | int | float)}
        return Metadata(metadata), replace(self.summary, metadata=scalars)


def _to_wire(value: Any) -> bool | int | float | str | Strings | PackedArray | None:
    if isinstance(value, np.ndarray):
        return PackedArray(value.dtype.str, value.tobytes())
    if isinstance(value, StringArray):
        value = value.packed()
    elif isinstance(value, list):
        if not all(isinstance(item, str) for item in value):
            return None
        value = PackedStrings.of(value)
    if isinstance(value, PackedStrings):
        return Strings(value.lengths.astype("<u4").tobytes(), value.data)
    scalar: bool | int | float | str = value
    return scalar


def _size(value: bool | int | float | str | Strings | PackedArray) -> int:
    if isinstance(value, Strings):
        return len(value.lengths) + len(value.data)
    return len(value.data) if isinstance(value, PackedArray) else 4 * len(value) if isinstance(value, str) else 16


def _from_wire(key: str, value: bool | int | float | str | Strings | PackedArray) -> Any:
    if isinstance(value, PackedArray):
        dtype = _DTYPES.get(value.dtype)
        if dtype is None or len(value.data) % dtype.itemsize:
            raise EngineError(_WRONG.format(key))
        return np.frombuffer(value.data, dtype)
    if not isinstance(value, Strings):
        return value
    if len(value.lengths) % 4 or len(value.lengths) // 4 > MAX_STRINGS:
        raise EngineError(_WRONG.format(key))
    try:
        return PackedStrings(np.frombuffer(value.lengths, "<u4"), value.data)
    except ValueError:
        raise EngineError(_WRONG.format(key)) from None
