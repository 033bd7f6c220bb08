"""Track the position at the end of a growing JSON text: the path of the string that it is in."""

from __future__ import annotations

import re
from copy import copy

Path = tuple[str | None, ...]  # names of members, None for array elements

_OUTSIDE = re.compile(rb'[^{}\[\],:"]+|[{}\[\],:"]')  # text between strings
_PLAIN = re.compile(rb'[^"\\\x80-\xff]*')  # unescaped single-byte characters of a string
_INSIDE = re.compile(  # complete characters, or the end of a string
    rb'(?P<bytes>[^"\\\x80-\xff]+)|"|\\(?:u[0-9a-fA-F]{4}|[^u])|[\xc0-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xff][\x80-\xbf]{3}'
)


class JsonPosition:
    """The position at the end of a valid, growing JSON text.

    Attributes:
        path: path of the string value that the text ends in, after a complete character; otherwise None. Names are
            spelled as in the text.
        size: number of characters of that string; an escape counts once.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self.size = 0
        self._path: list[str | None] = []
        self._names = False  # True if the next string is the name of a member
        self._inside = False
        self._rest = b""  # incomplete character at the end
        self._name = b""
        self._string_path: Path = ()

    def fork(self) -> JsonPosition:
        """Return an independent copy."""
        other = copy(self)
        other._path = list(self._path)
        return other

    def accept(self, text: bytes) -> None:
        """Append a token's text."""
        if self.path is not None and _PLAIN.fullmatch(text):
            self.size += len(text)
            return
        text, position = self._rest + text, 0
        while match := (_INSIDE if self._inside else _OUTSIDE).match(text, position):
            position = match.end()
            if self._inside and match[0] != b'"':
                self.size += len(match["bytes"]) if match["bytes"] else 1
                if self._names:
                    self._name += match[0]
            elif self._inside:
                self._end()
            else:
                self._accept_mark(match[0])
        self._rest = text[position:]
        self.path = self._string_path if self._inside and not self._names and not self._rest else None

    def _end(self) -> None:
        """Leave a string."""
        self._inside = False
        if self._names:
            self._path[-1] = self._name.decode(errors="replace")

    def _accept_mark(self, mark: bytes) -> None:
        """Append a mark, or other text, outside of strings."""
        if mark == b'"':
            self._inside, self.size, self._name = True, 0, b""
            self._string_path = () if self._names else tuple(self._path)
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
