"""Equivalence classes of characters, derived from the patterns of a string.

A regular expression distinguishes characters only by its literals and classes. If two characters belong to the same of
these sets, replacing one by the other in a text does not change whether the text matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Characters = tuple[tuple[int, int], ...]  # ranges of code points, each with its first and last one
Alphabet = frozenset[Characters]  # the sets that distinguish characters

CODES = 0x110000  # number of Unicode code points
_HEX = r"x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}"
_PIECE = re.compile(
    rf"""
    \[\^?(?P<items>(?!\])(?:\\.|[^\\\[\]])+)\]
    | (?P<single>\\(?:{_HEX}|[^xu]))
    | (?:\(\?:|\((?!\?)|\{{\d+(?:,\d*)?\}}|[)|^$.*+?])
    | (?P<literal>[^\\\[(])
    """,
    re.VERBOSE | re.DOTALL,
)
_ITEM = re.compile(rf"(\\(?:{_HEX}|[^xu])|[^\\])(?:-(\\(?:{_HEX}|[^xudws])|[^\\]))?", re.IGNORECASE | re.DOTALL)
_OPERATORS = ("&&", "--", "~~")  # set operations between classes
_CLASSES: dict[str, Characters] = {
    "d": ((0x30, 0x39),),
    "w": ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
    "s": ((0x09, 0x0D), (0x20, 0x20)),
}
_CONTROLS = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D}
_APART: Characters = (  # characters that JSON escapes, spaces other than U+0020, surrogates and the BOM
    *((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xD800, 0xDFFF), (0xFEFF, 0xFEFF)),
)


class UnknownRule(Exception):
    """Raised if the characters that a rule distinguishes cannot be determined."""


def sets_of_text(text: str) -> Alphabet:
    """Return the sets of a literal text."""
    return frozenset(((ord(character), ord(character)),) for character in text)


def sets_of_pattern(pattern: str) -> Alphabet:
    """Return the sets of a regular expression. Raises UnknownRule for unsupported syntax."""
    sets, position = set[Characters](), 0
    while position < len(pattern):
        piece = _PIECE.match(pattern, position)
        if not piece:
            raise UnknownRule(pattern)
        position = piece.end()
        if piece["items"]:
            sets.add(tuple(sorted(_ranges(piece["items"]))))
        elif piece["single"] or piece["literal"]:
            sets.add(_set_of(piece["single"] or piece["literal"]))
    return frozenset(sets)


def representatives(alphabet: Alphabet) -> NDArray[np.uint32]:
    """Return the first equivalent code point of each code point: uint32 [``CODES``].

    Characters that cannot stand unescaped in a JSON string are only equivalent to themselves.
    """
    edges = {edge for ranges in (*alphabet, _APART) for low, high in ranges for edge in (low, high + 1)}
    table = np.arange(CODES, dtype=np.uint32)
    firsts: dict[Alphabet, int] = {}
    for low, end in pairwise(sorted(edges | {CODES})):
        if not _has(_APART, low):
            table[low:end] = firsts.setdefault(frozenset(ranges for ranges in alphabet if _has(ranges, low)), low)
    return table


def _has(characters: Characters, code: int) -> bool:
    return any(low <= code <= high for low, high in characters)


def _ranges(items: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a class; ``items`` is the text between its brackets."""
    if any(operator in items for operator in _OPERATORS):
        raise UnknownRule(items)
    for first, last in _ITEM.findall(items):
        ranges = _set_of(first)
        if not last:
            yield from ranges
        elif len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
            yield ranges[0][0], _set_of(last)[0][1]
        else:
            raise UnknownRule(items)


def _set_of(item: str) -> Characters:
    """Return the ranges of a character, an escape, or the escape of a class."""
    kind = item[1:2]
    if kind.lower() in _CLASSES and len(item) == 2:
        return _CLASSES[kind.lower()]
    code = ord(item[-1]) if len(item) < 3 else int(item[2:], 16)
    if kind in _CONTROLS:
        code = _CONTROLS[kind]
    elif (len(item) == 2 and (kind.isalnum() or kind in "<>")) or 0xD800 <= code <= 0xDFFF:
        raise UnknownRule(item)  # an assertion such as \b, or half of a surrogate pair
    return ((code, code),)
