"""The place where a JSON text ends: in which string of it."""

from __future__ import annotations

import re

Path = tuple[str | None, ...]  # names of members, None for the elements of arrays

_OUTSIDE = re.compile(rb'[^{}\[\],:"]+|[{}\[\],:"]')  # between strings
_PLAIN = re.compile(rb'[^"\\\x80-\xff]*')  # of a string: characters of one byte
_INSIDE = re.compile(  # whole characters, or the end of a string
    rb'(?P<bytes>[^"\\\x80-\xff]+)|"|\\(?:u[0-9a-fA-F]{4}|[^u])|[\xc0-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xff][\x80-\xbf]{3}'
)


class Place:
    """Follows a JSON text, which is right so far, as it grows.

    Attributes:
        path: of the value whose string it is in, behind whole characters; else None. Names are as they are written.
        size: characters of that string; an escape is one.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self.size = 0
        self._path: list[str | None] = []
        self._names = False  # whether the next string is the name of a member
        self._inside = False
        self._rest = b""  # the beginning of a character
        self._name = b""
        self._here: Path = ()

    def accept(self, text: bytes) -> None:
        """Go on by a token's text."""
        if self.path is not None and _PLAIN.fullmatch(text):
            self.size += len(text)
            return
        text, at = self._rest + text, 0
        while found := (_INSIDE if self._inside else _OUTSIDE).match(text, at):
            at = found.end()
            if self._inside and found[0] != b'"':
                self.size += len(found["bytes"]) if found["bytes"] else 1
                if self._names:
                    self._name += found[0]
            elif self._inside:
                self._end()
            else:
                self._go_on(found[0])
        self._rest = text[at:]
        self.path = self._here if self._inside and not self._names and not self._rest else None

    def _end(self) -> None:
        """The end of a string."""
        self._inside = False
        if self._names:
            self._path[-1] = self._name.decode(errors="replace")

    def _go_on(self, mark: bytes) -> None:
        """Outside strings."""
        if mark == b'"':
            self._inside, self.size, self._name = True, 0, b""
            self._here = () if self._names else tuple(self._path)
        elif mark in (b"{", b"["):
            self._names = mark == b"{"
            self._path.append("" if self._names else None)
        elif mark in (b"}", b"]"):
            self._path.pop()
            self._names = False
        elif mark == b",":
            self._names = self._path[-1] is not None
        elif mark == b":":
            self._names = False
