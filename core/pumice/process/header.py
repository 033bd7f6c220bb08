"""The header of a model's file, sent by its engine or a reader, since a server does not open models."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np

from pumice.engine.messages import EngineMessage, Name
from pumice.errors import EngineError, ModelError
from pumice.gguf.metadata import MAX_STRINGS, Metadata
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
    loras: list[Name] = []

    @classmethod
    def of(cls, metadata: Mapping[str, Any], summary: Summary, loras: list[str]) -> Header:
        """Make a header. Raises ModelError if the metadata is too large to be sent."""
        wire_metadata = {key: value for key in metadata if (value := _to_wire(metadata[key])) is not None}
        size = sum(len(key) + _size(value) for key, value in wire_metadata.items())
        if size > MAX_HEADER_BYTES:
            raise ModelError(f"the file's metadata takes {size} bytes, but the limit is {MAX_HEADER_BYTES}")
        return cls(wire_metadata, replace(summary, metadata={}), loras)

    def read(self) -> tuple[Metadata, Summary]:
        """Return metadata and summary. Raises EngineError if the metadata is invalid."""
        metadata = {key: _from_wire(key, value) for key, value in self.metadata.items()}
        scalars = {key: value for key, value in metadata.items() if isinstance(value, str | int | float)}
        return Metadata(metadata), replace(self.summary, metadata=scalars)


def _to_wire(value: Any) -> bool | int | float | str | Strings | PackedArray | None:
    if isinstance(value, np.ndarray):
        return PackedArray(value.dtype.str, value.tobytes())
    if not isinstance(value, list):
        scalar: bool | int | float | str = value
        return scalar
    if not all(isinstance(item, str) for item in value):
        return None
    texts = [item.encode("utf-8", "surrogateescape") for item in value]
    return Strings(np.array([len(text) for text in texts], "<u4").tobytes(), b"".join(texts))


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
    lengths = np.frombuffer(value.lengths, "<u4") if len(value.lengths) % 4 == 0 else None
    if lengths is None or len(lengths) > MAX_STRINGS or int(lengths.sum(dtype=np.uint64)) != len(value.data):
        raise EngineError(_WRONG.format(key))
    ends = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
    return [value.data[start:end].decode("utf-8", "surrogateescape") for start, end in itertools.pairwise(ends)]
