"""Streamed text on a terminal: words are not split at its edge."""

from __future__ import annotations

from prompt_toolkit.utils import get_cwidth


class Wrapper:
    """Converts text to terminal output.

    The beginning of a word is written immediately. If the word does not fit its line, it is erased and moved to the
    next one.
    """

    def __init__(self, columns: int) -> None:
        self._columns = max(2, columns - 1)  # terminals treat the last column differently
        self._column = 0
        self._word = ""  # written part of the current word

    def add(self, text: str) -> str:
        return "".join(map(self._add, text))

    def _add(self, character: str) -> str:
        width = get_cwidth(character)
        is_word = not character.isspace() and width < 2  # a wide character, as of Chinese, may stand on any line
        if character == "\n":
            self._begin_line("")
            return character
        if self._column + width <= self._columns:
            self._column += width
            self._word = self._word + character if is_word else ""
            return character
        if character.isspace():
            self._begin_line("")
            return "\n"
        moved = self._word if is_word and _cells(self._word) < self._column else ""
        erased = f"\x1b[{_cells(moved)}D\x1b[K" if moved else ""
        self._begin_line(moved + character)
        return f"{erased}\n{moved}{character}"

    def _begin_line(self, text: str) -> None:
        self._word = text
        self._column = _cells(text)


def _cells(text: str) -> int:
    return sum(map(get_cwidth, text))
