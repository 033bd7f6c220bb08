"""Characters that the rules of a string cannot tell apart, read from its patterns.

A regular expression knows characters only by the sets that it is made of: literals and classes. Where one character of
a text is replaced by another that is in the same of these sets, either both texts match or neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Characters = tuple[tuple[int, int], ...]  # the first and last code points of ranges
Alphabet = frozenset[Characters]  # the sets by which characters are told apart

CODES = 0x110000  # code points of Unicode
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
_OPERATORS = ("&&", "--", "~~")  # between the classes that a class may be made of
_CLASSES: dict[str, Characters] = {
    "d": ((0x30, 0x39),),
    "w": ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
    "s": ((0x09, 0x0D), (0x20, 0x20)),
}
_CONTROLS = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D}
_APART: Characters = (  # what JSON escapes, all spaces but the usual one, and no characters at all
    *((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xD800, 0xDFFF), (0xFEFF, 0xFEFF)),
)


class UnknownRule(Exception):
    """It was not understood by what a rule tells characters apart."""


def sets_of_text(text: str) -> Alphabet:
    """Those of a literal text."""
    return frozenset(((ord(character), ord(character)),) for character in text)


def sets_of_pattern(pattern: str) -> Alphabet:
    """Those of a regular expression. Raises UnknownRule for what has another syntax than most."""
    found, at = set[Characters](), 0
    while at < len(pattern):
        piece = _PIECE.match(pattern, at)
        if not piece:
            raise UnknownRule(pattern)
        at = piece.end()
        if piece["items"]:
            found.add(tuple(sorted(_ranges(piece["items"]))))
        elif piece["single"] or piece["literal"]:
            found.add(_set_of(piece["single"] or piece["literal"]))
    return frozenset(found)


def representatives(alphabet: Alphabet) -> NDArray[np.uint32]:
    """Of each code point the first one that cannot be told apart from it: uint32 [``CODES``].

    Itself where a JSON string does not have it as it is.
    """
    edges = {edge for each in (*alphabet, _APART) for low, high in each for edge in (low, high + 1)}
    table = np.arange(CODES, dtype=np.uint32)
    firsts: dict[Alphabet, int] = {}
    for low, end in pairwise(sorted(edges | {CODES})):
        if not _has(_APART, low):
            table[low:end] = firsts.setdefault(frozenset(each for each in alphabet if _has(each, low)), low)
    return table


def _has(characters: Characters, code: int) -> bool:
    return any(low <= code <= high for low, high in characters)


def _ranges(items: str) -> Iterator[tuple[int, int]]:
    """Of what is between the brackets of a class."""
    if any(each in items for each in _OPERATORS):
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
    """Of a character, an escape, or the escape of a class."""
    kind = item[1:2]
    if kind.lower() in _CLASSES and len(item) == 2:
        return _CLASSES[kind.lower()]
    code = ord(item[-1]) if len(item) < 3 else int(item[2:], 16)
    if kind in _CONTROLS:
        code = _CONTROLS[kind]
    elif (len(item) == 2 and (kind.isalnum() or kind in "<>")) or 0xD800 <= code <= 0xDFFF:
        raise UnknownRule(item)  # a place between characters, or half of one
    return ((code, code),)
