"""The tensors of a GGUF file: their descriptions, and their data as views of the mapped file."""

import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pumice.gguf.cursor import U64, Cursor
from pumice.gguf.quants import dequantize
from pumice.gguf.types import GGMLType, block_size, row_bytes

MAX_NAME_BYTES = 127  # the specification allows 64, but some writers use more
MAX_DIMS = 4
MIN_INFO_BYTES = 8 + 1 + 4 + 8 + 4 + 8  # length and bytes of the name, number of dimensions, one, type, offset


class TensorSource(Protocol):
    """Stored values, such as a ``GGUFTensor``; ``data`` and ``dequantize`` read memory only when called.

    Attributes:
        type: type of the stored blocks.
        shape: shape of the values in NumPy's order.
        nbytes: size of ``data`` in bytes.
        data: blocks as uint8 ``[*shape[:-1], bytes per row]``.
    """

    @property
    def type(self) -> GGMLType: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def data(self) -> NDArray[np.uint8]: ...

    def dequantize(self) -> NDArray[np.float32]:
        """Return the values as float32 of ``shape``."""

    def release(self, start: int = 0, end: int | None = None) -> None:
        """Allow the memory of bytes ``start`` to ``end`` (None: the last), which were copied, to be released."""


class ModelTensor(TensorSource, Protocol):
    """A tensor of a model, in a file or converted; see `GGUFTensor`."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, eq=False, slots=True)
class GGUFTensor:
    """A tensor of a file.

    Attributes:
        name: name of the tensor.
        type: type of the stored blocks.
        shape: non-empty shape in NumPy's order, GGUF's reversed: `(rows, columns)` for the matrix W of y = W x.
        offset: position of the data in the file, in bytes.
        nbytes: size of the data in bytes.
    """

    name: str
    type: GGMLType
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    _buffer: mmap.mmap = field(repr=False)

    @property
    def data(self) -> NDArray[np.uint8]:
        """The stored bytes, a read-only view of the file: uint8 of shape (*shape[:-1], bytes per row)."""
        raw = np.frombuffer(self._buffer, np.uint8, self.nbytes, self.offset)
        raw.flags.writeable = False
        return raw.reshape(*self.shape[:-1], -1)

    def dequantize(self) -> NDArray[np.float32]:
        """Return float32 of `shape`: for F32 a read-only view of the file, otherwise a new array."""
        return dequantize(self.data, self.type)

    def release(self, start: int = 0, end: int | None = None) -> None:
        """Release the memory of pages that lie within bytes ``start`` to ``end`` (None: the last) of this tensor.

        Later accesses read the file again. Does nothing on systems without ``madvise``.
        """
        if hasattr(self._buffer, "madvise") and hasattr(mmap, "MADV_DONTNEED"):
            start = -(-(self.offset + start) // mmap.PAGESIZE) * mmap.PAGESIZE
            end = (self.offset + (self.nbytes if end is None else end)) // mmap.PAGESIZE * mmap.PAGESIZE
            if start < end:
                self._buffer.madvise(mmap.MADV_DONTNEED, start, end - start)


def without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Remove leading dimensions of 1, which some writers omit."""
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape


def read_tensors(cursor: Cursor, n_tensors: int, alignment: int) -> dict[str, GGUFTensor]:
    """Read `n_tensors` descriptions, in file order. Raises GGUFError if one is invalid or its data is missing."""
    tensors: dict[str, GGUFTensor] = {}
    for i in range(n_tensors):
        cursor.field = f"tensor {i}"
        start = cursor.offset
        name = cursor.name("name", MAX_NAME_BYTES)
        cursor.field = f"tensor {name!r}"
        if name in tensors:
            raise cursor.error("appears twice", start)
        tensors[name] = _read_tensor(cursor, name, alignment)

    data_start = -(-cursor.offset // alignment) * alignment
    for name, tensor in tensors.items():
        tensors[name] = replace(tensor, offset=data_start + tensor.offset)
    _check_layout(cursor, tensors.values())
    return tensors


def _read_tensor(cursor: Cursor, name: str, alignment: int) -> GGUFTensor:
    """Read one description; its offset is relative to the data section."""
    start = cursor.offset
    n_dims = cursor.u32("number of dimensions")
    if not 1 <= n_dims <= MAX_DIMS:
        raise cursor.error(f"{n_dims} dimensions, expected 1 to {MAX_DIMS}", start)
    start = cursor.offset
    ne = [int(cursor.scalar(U64, "dimension")) for _ in range(n_dims)]
    if 0 in ne:
        raise cursor.error(f"a dimension of {_dims(ne)} is zero", start)

    type_id = cursor.u32("type")
    try:
        type = GGMLType(type_id)
    except ValueError:
        raise cursor.error(f"unknown tensor type {type_id}", cursor.offset - 4) from None
    if ne[0] % block_size(type):
        raise cursor.error(f"a row of {ne[0]} is not a whole number of {type.name} blocks of {block_size(type)}", start)
    nbytes = row_bytes(type, ne[0]) * prod(ne[1:])
    if nbytes > cursor.size:
        raise cursor.cut(f"{_dims(ne)} of {type.name} takes {nbytes} bytes, more than the file's {cursor.size}", start)

    offset = int(cursor.scalar(U64, "offset"))
    if offset % alignment:
        raise cursor.error(f"offset {offset} is not a multiple of the alignment {alignment}", cursor.offset - 8)
    return GGUFTensor(name, type, tuple(reversed(ne)), offset, nbytes, cursor.buffer)


def _check_layout(cursor: Cursor, tensors: Iterable[GGUFTensor]) -> None:
    """Check that every tensor lies within the file and none overlap."""
    before: GGUFTensor | None = None
    for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
        cursor.field = f"tensor {tensor.name!r}"
        if tensor.offset + tensor.nbytes > cursor.size:
            raise cursor.cut(f"its {tensor.nbytes} bytes exceed the file's {cursor.size}", tensor.offset)
        if before is not None and tensor.offset < before.offset + before.nbytes:
            raise cursor.error(f"overlaps tensor {before.name!r}", tensor.offset)
        before = tensor


def _dims(ne: Sequence[int]) -> str:
    return " x ".join(map(str, ne))
