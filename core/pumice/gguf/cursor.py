"""A position in a mapped file that never leaves it: every read is checked before it happens."""

import struct
from mmap import mmap
from pathlib import Path
from typing import Any

from pumice.errors import GGUFError

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")


class Cursor:
    """Reads little-endian values one after the other.

    `field` names what is being read, for messages; `offset` is where the next read begins, in bytes.
    """

    def __init__(self, path: Path, buffer: mmap) -> None:
        self.path = path
        self.buffer = buffer
        self.offset = 0
        self.field = "header"

    @property
    def remaining(self) -> int:
        """Bytes from here to the end of the file."""
        return len(self.buffer) - self.offset

    def error(self, problem: str, offset: int | None = None) -> GGUFError:
        """An error about the current field, at `offset` or else here."""
        at = self.offset if offset is None else offset
        return GGUFError(f"{self.path}: {self.field}: {problem} (at byte {at})")

    def skip(self, n_bytes: int, what: str) -> int:
        """Step over `n_bytes` and return the offset where they begin."""
        if n_bytes > self.remaining:
            raise self.error(f"{what} takes {n_bytes} bytes but the file ends after {self.remaining}")
        start = self.offset
        self.offset += n_bytes
        return start

    def scalar(self, layout: struct.Struct, what: str) -> Any:
        """One value of the given layout."""
        return layout.unpack_from(self.buffer, self.skip(layout.size, what))[0]

    def u32(self, what: str) -> int:
        return int(self.scalar(U32, what))

    def count(self, what: str, item_bytes: int, limit: int | None = None) -> int:
        """A 64-bit number of items that follow, each at least `item_bytes` long."""
        start = self.offset
        n = int(self.scalar(U64, what))
        if limit is not None and n > limit:
            raise self.error(f"{what} is {n}, more than the {limit} allowed", start)
        if n * item_bytes > self.remaining:
            raise self.error(f"{what} is {n}, but only {self.remaining} bytes follow", start)
        return n

    def string(self, what: str) -> bytes:
        """A string: 64-bit length, then that many bytes."""
        n = self.count(f"length of {what}", 1)
        return self.buffer[self.skip(n, what) : self.offset]

    def name(self, what: str, limit: int) -> str:
        """A string that must be valid UTF-8 of 1 to `limit` bytes."""
        start = self.offset
        n = self.count(f"length of {what}", 1, limit)
        if n == 0:
            raise self.error(f"{what} is empty", start)
        raw = self.buffer[self.skip(n, what) : self.offset]
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.error(f"{what} is not valid UTF-8", start) from None
