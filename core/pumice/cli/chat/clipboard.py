"""The terminal's clipboard, and blocks of code to copy."""

from __future__ import annotations

import base64
import re
import sys

import click

from pumice.errors import PumiceError
from pumice.wording import counted_as

MAX_BYTES = 74_000  # that terminals take; xterm's limit is 100,000 characters of base64

_BLOCK = re.compile(
    r"^(?P<indent> *)(?:(?:[-*+]|\d{1,9}[.)]) +)*(?P<fence>`{3,}|~{3,})[^\n`]*\n"
    r"(?P<code>.*?)(?:^ *(?P=fence)[`~]*[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)


def code_blocks(text: str) -> list[str]:
    """Return the fenced blocks of code of a Markdown text, without the indentation of their fences."""
    return [
        re.sub(rf"^ {{0,{block.start('fence') - block.start()}}}", "", block["code"], flags=re.MULTILINE)
        for block in _BLOCK.finditer(text)
    ]


def choose_text(text: str, choice: str) -> str:
    """Return what to copy of an answer.

    Args:
        text: the answer.
        choice: the number of a block of code, ``all`` for the whole answer, or empty for the last block, and the whole
            answer if it has none.

    Raises:
        PumiceError: there is no such block.
    """
    blocks = code_blocks(text)
    if choice == "all" or (not choice and not blocks):
        return text
    if not choice:
        return blocks[-1]
    if not (choice.isdecimal() and len(choice) < 7 and int(choice)):
        raise PumiceError(f"/copy: expected the number of a block of code, or all, not {choice!r:.60}")
    if int(choice) > len(blocks):
        count = "no block" if not blocks else counted_as(len(blocks), "block")
        raise PumiceError(f"the last answer has {count} of code")
    return blocks[int(choice) - 1]


def copy(text: str) -> None:
    """Ask the terminal to put a text into the clipboard (OSC 52 of xterm's control sequences).

    Raises:
        PumiceError: the text is too long, or standard output is no terminal.
    """
    content = text.encode("utf-8", "replace")
    if len(content) > MAX_BYTES:
        raise PumiceError(f"the text has {len(content)} bytes; terminals take {MAX_BYTES}. /save FILE writes all of it")
    if not sys.stdout.isatty():
        raise PumiceError("/copy needs a terminal")
    click.echo(b"\x1b]52;c;%s\x07" % base64.b64encode(content), nl=False)  # noqa: TID251 (base64)
