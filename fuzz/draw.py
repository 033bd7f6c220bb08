"""`Draw`: numbers, choices and texts derived from a fuzzer's bytes."""

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")

_WIDTHS = (8, 16, 31, 32, 33, 53, 63, 64, 65)


class Draw:
    """Reads values from ``data`` in order. After the last byte every value is the smallest of its kind."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """Number of unread bytes."""
        return len(self._data) - self._at

    def bytes(self, n: int) -> bytes:
        """Return up to ``n`` bytes."""
        start = self._at
        self._at = min(start + n, len(self._data))
        return self._data[start : self._at]

    def rest(self) -> bytes:
        """Return all remaining bytes."""
        return self.bytes(self.left)

    def below(self, n: int) -> int:
        """Return a number from 0 to ``n - 1``."""
        return int.from_bytes(self.bytes(1 if n <= 256 else 4), "little") % n

    def flag(self) -> bool:
        """Return True or False."""
        return bool(self.below(2))

    def choice(self, items: Sequence[Item]) -> Item:
        """Return one of ``items``."""
        return items[self.below(len(items))]

    def integer(self) -> int:
        """Return a small number, a number near a power of two of a common width, or any 64-bit number."""
        kind = self.below(4)
        if kind < 2:
            return self.below(256) - (128 if kind else 0)
        if kind == 2:
            return (1 << self.choice(_WIDTHS)) - 2 + self.below(4)
        return int.from_bytes(self.bytes(8), "little", signed=True)

    def text(self, n: int) -> str:
        """Return a text of up to ``n`` bytes of UTF-8."""
        return self.bytes(n).decode(errors="ignore")

    def json(self, depth: int = 3) -> object:
        """Return a JSON value, nested up to ``depth`` levels."""
        kind = self.below(9 if depth else 7)
        if kind == 7:
            return [self.json(depth - 1) for _ in range(self.below(5))]
        if kind == 8:
            return {self.text(self.below(8)): self.json(depth - 1) for _ in range(self.below(5))}
        if kind == 6:
            return self.choice((0.5, -1.0, 1e300, 1e-300, float("inf"), float("nan"), -0.0))
        return (None, False, True, 0, "", 0)[kind] if kind < 3 else self.integer() if kind in (3, 5) else self.text(12)
