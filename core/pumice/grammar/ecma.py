"""Translate regular expressions of ECMA-262, which JSON Schema uses, to the syntax of Rust's crate regex.

The grammar is that of ECMA-262, section 22.2.1, with annex B.1.2: characters that cannot begin a construct are literal.
Assertions and back references have no counterpart. They are replaced by weaker expressions, so that the result matches
every text that the original matches. Python's ``(?P<name>...)``, ``(?i)``, ``\\A`` and ``\\Z`` are understood too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ANYTHING = r"[\s\S]*"
_LINE_ENDS = r"\n\r\u2028\u2029"
_SPACES = r"\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": _SPACES}
_CONTROLS = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D, "0": 0x00}
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = (
    rf"{_PAIR}|\\u\{{[0-9a-fA-F]{{1,6}}\}}|\\u[0-9a-fA-F]{{4}}|\\x[0-9a-fA-F]{{2}}|\\c[A-Za-z]|\\[pP]\{{[^{{}}]*\}}"
)
_TOKEN = re.compile(
    rf"""
    (?P<escape>{_ESCAPE}|\\k<\w+>|\\[1-9][0-9]*|\\.)
    | \[(?P<negated>\^?)(?P<items>(?:\\.|[^\\\]])*+)(?P<closed>\]|\\?\Z)
    | (?P<assertion>\(\?<?[=!])
    | (?P<group>\((?:\?(?::|P?<[A-Za-z_$][\w$]*>|[a-z]*(?:-[a-z]+)?[:)]))?)
    | (?P<end>\))
    | (?P<counted>\{{[0-9]+(?:,[0-9]*)?\}})
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ITEM = re.compile(rf"{_ESCAPE}|\\.|[^\\]", re.DOTALL)
_IN_CLASS = frozenset("[]^-&~\\")  # characters that Rust's classes treat as operators somewhere


def to_rust(pattern: str) -> str:
    """Return a regular expression of Rust's crate regex that matches every text that ``pattern`` matches.

    Invalid patterns are returned in part unchanged, so that the compiler reports them.
    """
    parts: list[str] = []
    skipped = 0  # open parentheses of an assertion that is left out
    for token in _TOKEN.finditer(pattern):
        if skipped:
            opens = token["assertion"] or (token["group"] and token["group"][-1] != ")")
            skipped += bool(opens) - bool(token["end"])
        elif token["assertion"]:
            skipped = 1
            parts.append("")
        elif token["escape"]:
            parts.append(_outside(token["escape"]))
        elif token["closed"] == "]":
            parts.append(_class(token["items"], bool(token["negated"])))
        else:
            parts.append(_plain(token[0], token["other"]))
        if parts[-2:-1] == [""] and parts[-1][:1] in ("*", "+", "?", "{"):
            parts.insert(-1, "(?:)")  # the repetition of an assertion that was left out
    return pattern if skipped else "".join(_without_inner_anchors(parts))


def _without_inner_anchors(parts: list[str]) -> Iterator[str]:
    """Yield the parts but for anchors inside of texts, such as the last one in ``^([0-9]+(,|$))+$``."""
    outer, ends, open_groups = list[int](), dict[int, int](), list[int]()
    for i, part in enumerate(parts):
        if part == ")" and open_groups:
            ends[open_groups.pop()] = i
        outer.append(open_groups[-1] if open_groups else -1)
        if part[:1] == "(" and part[-1] != ")":
            open_groups.append(i)

    def repeats(group: int) -> bool:
        after = ends.get(group, len(parts)) + 1
        return after < len(parts) and parts[after][0] in "*+?{"

    def leads(i: int) -> bool:
        return is_first[i] and (outer[i] < 0 or (not repeats(outer[i]) and leads(outer[i])))

    def trails(i: int) -> bool:
        group = outer[i]
        return is_last[i] and (group < 0 or (not repeats(group) and group in ends and trails(ends[group])))

    is_first, is_last = [True], [True]  # of their alternatives, anchors left aside
    for part in parts[:-1]:
        is_first.append(part == "|" or part[:1] == "(" or (part in ("^", "") and is_first[-1]))
    for part in parts[:0:-1]:
        is_last.append(part in ("|", ")") or (part in ("$", "") and is_last[-1]))
    is_last.reverse()

    for i, part in enumerate(parts):
        if (part == "^" and not leads(i)) or (part == "$" and not trails(i)):
            yield "(?:)"
        else:
            yield part


def _plain(text: str, other: str | None) -> str:
    if other == ".":
        return f"[^{_LINE_ENDS}]"
    return f"\\{other}" if other in ("{", "}") else text


def _outside(escape: str) -> str:
    """Return an escape outside of classes."""
    letter = escape[1]
    if letter in "bB":
        return ""
    if letter == "k" or letter in "123456789":
        return _ANYTHING
    if letter in "AZz":
        return "^" if letter == "A" else "$"
    if letter.lower() in _CLASSES:
        return f"[{'^' * letter.isupper()}{_CLASSES[letter.lower()]}]"
    return escape if letter in "pP" and len(escape) > 2 else _character(_code(escape))


def _class(items: str, negated: bool) -> str:
    """Return a class; ``[^]`` matches any character, and ``[]`` none."""
    if not items:
        return r"[\s\S]" if negated else r"[^\s\S]"
    return f"[{'^' * negated}{''.join(_ranges(_ITEM.findall(items)))}]"


def _ranges(items: list[str]) -> Iterator[str]:
    """Yield the ranges of a class; beside the escape of a class a hyphen is literal."""
    position = 0
    while position < len(items):
        first = _item(items[position])
        is_range = items[position + 1 : position + 2] == ["-"] and position + 2 < len(items)
        last = _item(items[position + 2]) if is_range else ""
        if is_range and isinstance(first, int) and isinstance(last, int):
            yield f"{_character(first, _IN_CLASS)}-{_character(last, _IN_CLASS)}"
            position += 3
        else:
            yield first if isinstance(first, str) else _character(first, _IN_CLASS)
            position += 1


def _item(item: str) -> int | str:
    """Return the code point of a character of a class, or the ranges of an escape of several."""
    letter = item[1:2]
    if letter.lower() in _CLASSES and len(item) == 2:
        ranges = _CLASSES[letter.lower()]
        return f"[^{ranges}]" if letter.isupper() else ranges
    if letter in ("p", "P") and len(item) > 2:
        return item
    return 0x08 if item == r"\b" else _code(item)


def _code(item: str) -> int:
    """Return the code point of a character or of its escape."""
    if len(item) == 1:
        return ord(item)
    letter, digits = item[1], item[2:].strip("{}")
    if len(item) == 12 and letter == "u":
        return 0x10000 + ((int(item[2:6], 16) - 0xD800) << 10) + int(item[8:12], 16) - 0xDC00
    if letter in "ux" and digits:
        return int(digits, 16)
    if letter == "c" and digits:
        return ord(digits) % 32
    return _CONTROLS.get(letter, ord(letter))


def _character(code: int, operators: frozenset[str] = frozenset(r"\.^$*+?()[]{}|")) -> str:
    """Return a character as a literal; ``operators`` are escaped."""
    character = chr(code) if code < 0x110000 else ""
    if character in operators:
        return f"\\{character}"
    if not character or not character.isprintable():
        return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\u{{{code:x}}}"
    return character
