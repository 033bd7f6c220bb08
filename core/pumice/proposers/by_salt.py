"""Data that proposers keep for later sequences, separate for each salt and bounded over all salts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from typing import Generic, TypeVar

Kept = TypeVar("Kept", bound=Sized)


class BySalt(Generic[Kept]):
    """Collections by salt; the salt not used for longest is forgotten first.

    Args:
        make: returns an empty collection.
        most: maximum total of the collections' lengths and of the bytes of their salts.
    """

    def __init__(self, make: Callable[[], Kept], most: int) -> None:
        self._make = make
        self._most = most
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()
        self._n = 0

    def of(self, salt: bytes) -> Kept | None:
        """Return the collection of a salt, if there is one."""
        return self._kept.get(salt)

    @contextmanager
    def growing(self, salt: bytes) -> Iterator[Kept]:
        """Lend the collection of a salt to be added to, and then forget the oldest salts beyond the bound."""
        kept = self._kept.pop(salt, None)
        if kept is None:
            kept = self._make()
        else:
            self._n -= len(salt) + len(kept)
        yield kept
        if len(kept):
            self._kept[salt] = kept
            self._n += len(salt) + len(kept)
        while self._n > self._most:
            oldest, forgotten = self._kept.popitem(last=False)
            self._n -= len(oldest) + len(forgotten)
