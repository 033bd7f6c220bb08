"""Arrays of strings, which are decoded on first use."""

from __future__ import annotations

import itertools
from mmap import mmap

import numpy as np
from numpy.typing import NDArray

_SEPARATORS = b"\n\0\x1f\x1e\x1d\x1c"  # one of them occurs in no token of nearly every vocabulary
_PREFIX = 8  # bytes of a string's length in a file


class PackedStrings:
    """Strings as the lengths of their UTF-8 bytes (uint32), and all these bytes in one piece.

    Raises ValueError if the lengths do not add up to the number of bytes.
    """

    def __init__(self, lengths: NDArray[np.uint32], data: bytes) -> None:
        if int(lengths.sum(dtype=np.uint64)) != len(data):
            raise ValueError(f"the lengths of {len(lengths)} strings do not add up to {len(data)} bytes")
        self.lengths = lengths
        self.data = data

    def __len__(self) -> int:
        return len(self.lengths)

    def decode(self) -> list[str]:
        """Return all strings. Invalid UTF-8 becomes lone surrogates, so that different strings stay different."""
        ends = np.cumsum(self.lengths, dtype=np.int64)
        separator = next((byte for byte in _SEPARATORS if byte not in self.data), None)
        if separator is None or not len(ends):
            bounds = itertools.pairwise([0, *ends.tolist()])
            return [self.data[start:end].decode("utf-8", "surrogateescape") for start, end in bounds]
        n_between = len(ends) - 1
        joined = np.full(len(self.data) + n_between, separator, np.uint8)
        is_text = np.ones(len(joined), np.bool_)
        is_text[ends[:-1] + np.arange(n_between)] = False
        joined[is_text] = np.frombuffer(self.data, np.uint8)
        return joined.tobytes().decode("utf-8", "surrogateescape").split(chr(separator))

    @classmethod
    def of(cls, strings: list[str]) -> PackedStrings:
        """Pack strings, with lone surrogates as the bytes that they stand for."""
        texts = [string.encode("utf-8", "surrogateescape") for string in strings]
        return cls(np.array([len(text) for text in texts], np.uint32), b"".join(texts))


class StringArray:
    """The strings of an array in a file, each behind its length; ``ends`` are the offsets of their ends."""

    def __init__(self, buffer: mmap, start: int, ends: NDArray[np.uint64]) -> None:
        self._buffer = buffer
        self._start = start
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def packed(self) -> PackedStrings:
        """Return the strings without the lengths between them."""
        if not len(self._ends):
            return PackedStrings(np.zeros(0, np.uint32), b"")
        raw = np.frombuffer(self._buffer, np.uint8, int(self._ends[-1]) - self._start, self._start)
        ends = self._ends.astype(np.int64) - self._start
        starts = np.concatenate(([0], ends[:-1]))
        is_text = np.ones(len(raw), np.bool_)
        is_text[(starts[:, None] + np.arange(_PREFIX)).reshape(-1)] = False
        return PackedStrings((ends - starts - _PREFIX).astype(np.uint32), raw[is_text].tobytes())

    def decode(self) -> list[str]:
        """Return all strings, as ``PackedStrings.decode`` does."""
        return self.packed().decode()
