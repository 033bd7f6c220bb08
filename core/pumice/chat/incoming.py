"""Streamed text, and readers of it.

Readers are generators: they yield when they need more text, and return None if the text does not match. Their
results never depend on where the stream cuts the text.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]

_SPACE = re.compile(r"\s*")
_STRING_MARK = re.compile(r'["\\]')
_MAX_OVERLAPS = 32


class IncomingText:
    """Streamed text; ``ended`` is True once it is complete.

    Text that turns out not to be a call is read again from the next mark on, which could take quadratic time if there
    are many marks. Therefore the same part of the text is searched a limited number of times.
    """

    def __init__(self) -> None:
        self.text = ""
        self.ended = False
        self._searched = 0  # end of the searched text
        self._overlaps = 0  # consecutive searches that began before that end

    def may_search(self, start: int) -> bool:
        """Return False if the text at ``start`` has been searched too often."""
        self._overlaps = self._overlaps + 1 if start < self._searched else 0
        return self._overlaps <= _MAX_OVERLAPS

    def has_searched(self, end: int) -> None:
        """Record that the text up to ``end`` has been searched."""
        self._searched = max(self._searched, end)


def skip_space(source: IncomingText, position: int) -> Reading[int]:
    while True:
        match = _SPACE.match(source.text, position)
        assert match is not None
        position = match.end()
        if position < len(source.text) or source.ended:
            return position
        yield


def literal(source: IncomingText, position: int, word: str) -> Reading[int | None]:
    """Return the end of ``word``, which white space may precede; None if the text does not continue with it."""
    position = yield from skip_space(source, position)
    while True:
        text = source.text[position : position + len(word)]
        if text == word:
            return position + len(word)
        if source.ended or not word.startswith(text):
            return None
        yield


def read_name(source: IncomingText, position: int, characters: re.Pattern[str]) -> Reading[int]:
    position = yield from skip_space(source, position)
    while True:
        match = characters.match(source.text, position)
        assert match is not None
        position = match.end()
        if position < len(source.text) or source.ended:
            return position
        yield


def read_until(
    source: IncomingText, position: int, word: str, exactly: bool = False
) -> Reading[tuple[str, int | None]]:
    """Return the text before ``word`` and the position of ``word``, or "" and None without it.

    Unless ``exactly`` is set, one line break at each end of the text is removed.
    """
    if not source.may_search(position):
        return "", None
    searched = position
    while (end := source.text.find(word, searched)) < 0:
        if source.ended:
            source.has_searched(len(source.text))
            return "", None
        searched = max(position, len(source.text) - len(word) + 1)
        yield
    source.has_searched(end)
    text = source.text[position:end]
    return text if exactly else text.removeprefix("\n").removesuffix("\n"), end


def read_brackets(source: IncomingText, start: int, mark: re.Pattern[str], quotes: str) -> Reading[int | None]:
    """Return the position after the bracket that closes the one at ``start``; brackets in strings do not count."""
    if not source.may_search(start):
        return None
    depth, position, quote = 0, start, ""
    while True:
        match = (_string_end(quote) if quote else mark).search(source.text, position)
        if match is None or (match[0] == "\\" and match.end() == len(source.text)):
            if source.ended:
                source.has_searched(len(source.text))
                return None
            position = match.start() if match else len(source.text)
            yield
            continue
        position = match.end()
        if match[0] == "\\":
            position += 1
        elif quote:
            quote = ""
        elif match[0] in quotes:
            quote = match[0]
        else:
            depth += 1 if match[0] in "{[(" else -1
            if depth == 0:
                source.has_searched(position)
                return position


def _string_end(quote: str) -> re.Pattern[str]:
    return _STRING_MARK if quote == '"' else re.compile(r"['\\]")
