"""A position in a mapped file; every read is checked against the end of the file."""

import struct
from mmap import mmap
from pathlib import Path
from typing import Any

from pumice.errors import GGUFError

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")


class MissingBytesError(GGUFError):
    """The bytes up to ``end`` are needed, and the buffer has only the beginning of the file."""

    def __init__(self, message: str, end: int) -> None:
        super().__init__(message)
        self.end = end


class Cursor:
    """Reads little-endian values one after the other.

    `field` names the current field for messages; `offset` is the position of the next read in bytes; `size` is that of
    the file, of which the buffer may be the beginning.
    """

    def __init__(self, path: Path, buffer: mmap, size: int | None = None) -> None:
        self.path = path
        self.buffer = buffer
        self.size = len(buffer) if size is None else size
        self.offset = 0
        self.field = "header"

    @property
    def remaining(self) -> int:
        """Bytes from the current position to the end of the file."""
        return self.size - self.offset

    def error(self, problem: str, offset: int | None = None) -> GGUFError:
        """Return an error about the current field, at `offset` or the current position."""
        position = self.offset if offset is None else offset
        return GGUFError(f"{self.path}: {self.field}: {problem} (at byte {position})")

    def cut(self, problem: str, offset: int | None = None) -> GGUFError:
        """Return an ``error`` about bytes that the file does not have."""
        return self.error(f"{problem}; is the file complete?", offset)

    def skip(self, n_bytes: int, what: str) -> int:
        """Step over `n_bytes` and return the offset where they begin."""
        if n_bytes > self.remaining:
            raise self.cut(f"{what} takes {n_bytes} bytes but the file ends after {self.remaining}")
        start = self.offset
        self.need(start + n_bytes)
        self.offset += n_bytes
        return start

    def need(self, end: int) -> None:
        """Raise MissingBytesError unless the buffer reaches to ``end``."""
        if end > len(self.buffer):
            raise MissingBytesError(f"{self.path}: {self.field}: needs the bytes up to {end}", end)

    def scalar(self, layout: struct.Struct, what: str) -> Any:
        """Read one value of the given layout."""
        return layout.unpack_from(self.buffer, self.skip(layout.size, what))[0]

    def u32(self, what: str) -> int:
        return int(self.scalar(U32, what))

    def count(self, what: str, item_bytes: int, limit: int | None = None) -> int:
        """Read a 64-bit number of items that follow, each at least `item_bytes` long."""
        start = self.offset
        n = int(self.scalar(U64, what))
        if limit is not None and n > limit:
            raise self.error(f"{what} is {n}, more than the {limit} allowed", start)
        if n * item_bytes > self.remaining:
            raise self.cut(f"{what} is {n}, but only {self.remaining} bytes follow", start)
        return n

    def string(self, what: str) -> bytes:
        """Read a string: 64-bit length, then that many bytes."""
        n = self.count(f"length of {what}", 1)
        return self.buffer[self.skip(n, what) : self.offset]

    def name(self, what: str, limit: int) -> str:
        """Read a string that must be valid UTF-8 of 1 to `limit` bytes."""
        start = self.offset
        n = self.count(f"length of {what}", 1, limit)
        if n == 0:
            raise self.error(f"{what} is empty", start)
        raw = self.buffer[self.skip(n, what) : self.offset]
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.error(f"{what} is not valid UTF-8", start) from None
