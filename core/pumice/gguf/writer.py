"""`Writer`: write GGUF files of any size, tensor by tensor.

The layout follows the GGUF specification (ggml, `docs/gguf.md`): header, metadata, descriptions of the tensors, and
their data, padded to the alignment.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path
from struct import pack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pumice.errors import GGUFError
from pumice.file_names import real_path
from pumice.gguf.metadata import MAX_KEY_BYTES
from pumice.gguf.output import NewFiles, check_space
from pumice.gguf.parser import DEFAULT_ALIGNMENT, MAGIC, VERSIONS
from pumice.gguf.split import SPLIT_COUNT, SPLIT_NO, SPLIT_TENSORS, part_path
from pumice.gguf.tensors import MAX_DIMS
from pumice.gguf.values import EncodedValue, encode

if TYPE_CHECKING:
    from pumice.gguf.types import GGMLType

MAX_NAME_BYTES = 63  # of a tensor's name; llama.cpp's limit


class Described(Protocol):
    """The description of a tensor, such as a `GGUFTensor`."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> "GGMLType": ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...


@dataclass(frozen=True)
class TensorInfo:
    """A tensor to write. ``shape`` is in NumPy's order, GGUF's reversed; rows must be whole blocks of the type."""

    name: str
    type: "GGMLType"
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        from pumice.gguf.types import row_bytes

        return row_bytes(self.type, self.shape[-1]) * prod(self.shape[:-1])


class Writer:
    """Writes a model whose metadata and tensors are known in advance; their data arrives in pieces.

        with Writer("model.gguf", {"general.architecture": "llama"}, infos) as writer:
            for info in infos:
                writer.write(data_of(info))

    Args:
        path: path of the file; a split model ``name.gguf`` becomes ``name-00001-of-0000N.gguf`` and so on.
        metadata: values, or `Encoded` ones if the type matters; ``general.alignment`` is respected.
        tensors: descriptions, in the order in which the data will be written.
        parts: number of tensors in each part of a split model; None: one file.
        force: replace existing files.

    Invalid arguments and a full disk raise GGUFError before the first byte is written. The file gets its name only once
    it is complete (`NewFiles`); leaving the context with an error or with missing data leaves nothing behind.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        metadata: Mapping[str, Any],
        tensors: Sequence[Described],
        *,
        parts: Sequence[int] | None = None,
        version: int = VERSIONS[-1],
        force: bool = False,
    ) -> None:
        self.tensors = list(tensors)
        entries = {key: encode(value) for key, value in metadata.items()}
        _check(entries, self.tensors)
        self.alignment = _alignment(entries)
        self.headers = [  # of each file: everything before the data
            _header(entries_of_part, tensors_of_part, self.alignment, version)
            for entries_of_part, tensors_of_part in _divide(entries, self.tensors, parts)
        ]
        self._counts = [len(self.tensors)] if parts is None else list(parts)
        path = Path(path)
        self.paths = [path] if parts is None else [part_path(path, i, len(parts)) for i in range(len(parts))]
        self._files = NewFiles(self.paths, force=force)
        self._steps = self._write_headers()
        self._left = 0  # missing bytes of the current tensor

    @property
    def n_bytes(self) -> int:
        """Total size of all files in bytes."""
        return sum(map(len, self.headers)) + sum(padded(tensor.nbytes, self.alignment) for tensor in self.tensors)

    @property
    def offsets(self) -> list[int]:
        """Offset of each tensor's data in its file."""
        offsets, tensors = [], iter(self.tensors)
        for head, count in zip(self.headers, self._counts, strict=True):
            offset = len(head)
            for tensor in islice(tensors, count):
                offsets.append(offset)
                offset += padded(tensor.nbytes, self.alignment)
        return offsets

    def __enter__(self) -> "Writer":
        self._files.__enter__()
        check_space(real_path(self.paths[0]).parent, self.n_bytes)
        try:
            self._current: Described | None = next(self._steps)
        except BaseException as error:  # `with` does not handle errors of __enter__
            self._files.__exit__(type(error), error, None)
            raise
        return self

    def write(self, data: bytes | NDArray[Any]) -> None:
        """Write bytes of the current tensor, all or a piece. Raises ValueError if they exceed its size."""
        view = (
            memoryview(data) if isinstance(data, bytes) else np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        )
        if self._current is None or len(view) > self._left:
            name = "after the last tensor" if self._current is None else f"of tensor {self._current.name!r}"
            raise ValueError(f"{len(view)} bytes {name}, but only {self._left} are expected")
        self._files.write(view)
        self._left -= len(view)
        if not self._left:
            self._current = next(self._steps)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._current is not None:
            unfinished = ValueError(f"{self._left} bytes of tensor {self._current.name!r} are missing")
            self._files.__exit__(ValueError, unfinished, None)
            raise unfinished
        self._files.__exit__(kind, error, trace)

    def _write_headers(self) -> Iterator[Described | None]:
        """Yield each tensor in turn, then None, and write what precedes and follows its data."""
        tensors = iter(self.tensors)
        for head, count in zip(self.headers, self._counts, strict=True):
            self._files.next()
            self._files.write(head)
            for tensor in islice(tensors, count):
                self._left = tensor.nbytes
                yield tensor
                self._files.write(bytes(padded(tensor.nbytes, self.alignment) - tensor.nbytes))
        yield None


def padded(n_bytes: int, alignment: int = DEFAULT_ALIGNMENT) -> int:
    """Return the next multiple of the alignment."""
    return -(-n_bytes // alignment) * alignment


def _header(metadata: Mapping[str, EncodedValue], tensors: Sequence[Described], alignment: int, version: int) -> bytes:
    pieces = [MAGIC, pack("<IQQ", version, len(tensors), len(metadata))]
    for key, value in metadata.items():
        pieces += [_string(key), pack("<I", value.type), value.data]
    offset = 0
    for tensor in tensors:
        dims = tensor.shape[::-1]
        pieces += [_string(tensor.name), pack(f"<I{len(dims)}Q", len(dims), *dims), pack("<IQ", tensor.type, offset)]
        offset += padded(tensor.nbytes, alignment)
    head = b"".join(pieces)
    if not tensors and SPLIT_NO not in metadata:  # a vocabulary, which the package gguf does not pad
        return head
    return head + bytes(padded(len(head), alignment) - len(head))


def _string(text: str) -> bytes:
    raw = text.encode()
    return pack("<Q", len(raw)) + raw


def _divide(
    entries: dict[str, EncodedValue], tensors: Sequence[Described], parts: Sequence[int] | None
) -> Iterator[tuple[dict[str, EncodedValue], Sequence[Described]]]:
    """Yield metadata and tensors of each file. The first part of a split model has all metadata, as in gguf-split."""
    if parts is None:
        yield entries, tensors
        return
    if sum(parts) != len(tensors) or len(parts) > 0xFFFF:
        raise ValueError(f"{len(parts)} parts have {sum(parts)} tensors in total, but the model has {len(tensors)}")
    start = 0
    for i, count in enumerate(parts):
        split = {
            SPLIT_NO: encode(i, "u16"),
            SPLIT_TENSORS: encode(len(tensors), "i32"),
            SPLIT_COUNT: encode(len(parts), "u16"),
        }
        own = {key: value for key, value in entries.items() if key not in split} if i == 0 else {}
        yield {**own, **split}, tensors[start : start + count]
        start += count


def _check(entries: Mapping[str, EncodedValue], tensors: Sequence[Described]) -> None:
    for key in entries:
        if not 0 < len(key.encode()) <= MAX_KEY_BYTES:
            raise GGUFError(f"a metadata key has {len(key.encode())} bytes, expected 1 to {MAX_KEY_BYTES}")
    names = set()
    for tensor in tensors:
        n_bytes = len(tensor.name.encode())
        if not 0 < n_bytes <= MAX_NAME_BYTES:
            raise GGUFError(f"tensor name {tensor.name!r} has {n_bytes} bytes, expected 1 to {MAX_NAME_BYTES}")
        if tensor.name in names:
            raise GGUFError(f"two tensors are named {tensor.name!r}")
        names.add(tensor.name)
        if not 1 <= len(tensor.shape) <= MAX_DIMS or 0 in tensor.shape:
            raise GGUFError(f"tensor {tensor.name!r} of shape {tensor.shape} does not fit into a GGUF file")
        try:
            _ = tensor.nbytes
        except ValueError as error:
            raise GGUFError(f"tensor {tensor.name!r}: {error}") from None


def _alignment(entries: Mapping[str, EncodedValue]) -> int:
    value = entries.get("general.alignment")
    alignment = DEFAULT_ALIGNMENT if value is None else int.from_bytes(value.data, "little")
    if alignment <= 0 or alignment & (alignment - 1) or (value is not None and value.type_name != "u32"):
        raise GGUFError("metadata key 'general.alignment' is not a power of two of type u32")
    return alignment
