"""Frames between a pool and its workers: a length, and that many bytes of MessagePack with plain values."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Mapping
from typing import IO, TypeVar

import msgspec

from pumice.errors import PlainArguments, RequestError

T = TypeVar("T")

_LENGTH = struct.Struct("<I")
_LARGE = 1 << 20  # bytes of a frame that is not copied


class TaskCall(msgspec.Struct, array_like=True):
    """A task, named as resolved by ``pumice.lazy``, and its argument."""

    task: str
    payload: msgspec.Raw


class TaskResult(msgspec.Struct, array_like=True):
    """The result of a task, or its error: the name of a class in ``pumice.errors``, and its arguments."""

    result: msgspec.Raw = msgspec.Raw(b"\xc0")
    error: str = ""
    arguments: PlainArguments = []


def encode(value: object) -> bytes:
    """Encode a value. Raises RequestError if it is not plain data."""
    try:
        return msgspec.msgpack.encode(value, enc_hook=_plain)
    except OverflowError:
        raise RequestError("an integer has more than 64 bits") from None
    except UnicodeEncodeError as error:
        raise RequestError(f"a text is not valid Unicode: {error.object!r:.40} contains a lone surrogate") from None
    except (TypeError, RecursionError) as error:
        raise RequestError(f"a value is not plain data: {error}") from None


def decode(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Decode a value. Raises msgspec.DecodeError or msgspec.ValidationError unless it is of type ``kind``."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def take_standard_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Return standard input and output for messages alone: others read nothing, and write to standard error."""
    incoming = os.fdopen(os.dup(0), "rb", closefd=False)  # open until the process ends
    outgoing = os.fdopen(os.dup(1), "wb", buffering=0, closefd=False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return incoming, outgoing


def write_frame(stream: IO[bytes], data: bytes) -> None:
    """Write a frame to a raw stream, which may accept less than it is given. Raises OSError."""
    head = _LENGTH.pack(len(data))
    for part in (head + data,) if len(data) < _LARGE else (head, data):  # a large one is not copied
        view = memoryview(part)
        while view:
            view = view[stream.write(view) :]


def read_frame(stream: IO[bytes], most: int | Callable[[], int]) -> bytes | None:
    """Return the next frame, or None at the end of the stream.

    Raises OverflowError if the frame is larger than ``most`` bytes; a function is called for every frame.
    """
    head = _read(stream, _LENGTH.size)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > (most if isinstance(most, int) else most()):
        raise OverflowError(length)
    return _read(stream, length)


def _read(stream: IO[bytes], length: int) -> bytes | None:
    if length < _LARGE:
        return _read_parts(stream, length)
    # Memory that takes space as it is filled: the other end may have announced more than it sends.
    read = mmap.mmap(-1, length)
    start = 0
    with memoryview(read) as view:
        while start < length:
            n = stream.readinto(view[start:])  # type: ignore[attr-defined]  # of raw and of buffered streams
            if not n:
                return None
            start += n
    return read  # type: ignore[return-value]  # decoded like bytes


def _read_parts(stream: IO[bytes], length: int) -> bytes | None:
    parts: list[bytes] = []
    while length:
        part = stream.read(length)
        if not part:
            return None
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _plain(value: object) -> object:
    """Convert subclasses and views to plain types."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be represented in JSON")
