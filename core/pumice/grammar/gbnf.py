"""GBNF, llama.cpp's notation of grammars, as Lark.

llguidance converts it, but for escapes and dots, which are put plainly before: the notation is described in llama.cpp's
grammars/README.md.
"""

from __future__ import annotations

import re

_PARTS = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|#[^\n]*|\.', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)", re.DOTALL)
_ANY = r"[^\x00]"  # a dot of GBNF is any character, also the end of a line
_BETWEEN = {'"': '"\\', "[": "]\\^-["}  # characters that mean something in a literal, and in a class


def gbnf_to_lark(text: str) -> str:
    """The Lark grammar of one in GBNF; Lark stays as it is. Raises ValueError, which says what is wrong."""
    from llguidance.gbnf_to_lark import any_to_lark

    try:
        lark: str = any_to_lark(_PARTS.sub(_plain, text) if "::=" in text else text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except Exception as error:  # it has no class of its own for them
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None
    return lark


def _plain(part: re.Match[str]) -> str:
    """A literal, a class, a comment or a dot without what llguidance does not read."""
    if part[0] == ".":
        return _ANY
    if part[0].startswith("#"):
        return ""
    kind = part[0][0]
    return _ESCAPE.sub(lambda escape: _character(escape, _BETWEEN[kind]), part[0])


def _character(escape: re.Match[str], meaning: str) -> str:
    """The character that an escape by its number stands for, itself escaped where it would mean something."""
    digits = escape[1] or escape[2] or escape[3]
    if digits is None:
        return escape[0]
    character = chr(min(int(digits, 16), 0x10FFFF))
    if character in meaning or not character.isprintable():
        names = {"\n": r"\n", "\t": r"\t", "\r": r"\r", '"': r"\"", "\\": r"\\"}
        return names.get(character, f"\\x{ord(character):02x}" if ord(character) < 256 else character)
    return character
