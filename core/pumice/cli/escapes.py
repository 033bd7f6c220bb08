"""Escape sequences of prompts, such as a backslash and an n for a newline, which shells leave alone."""

from __future__ import annotations

import os
import re

import click

from pumice.cli.vocabulary import Decorator, option

_SEQUENCE = re.compile(rb"""\\(?:x([0-9a-fA-F]{2})|([nrt'"\\]))""")
_BYTES = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def escape_option(texts: str) -> Decorator:
    """Return the decorator of ``--escape``, whose help says in which texts it reads escape sequences."""
    help = rf"Read \n, \r, \t, \', \", \\ and \xHH in {texts} as the characters they stand for."
    return option("-e", "--escape/--no-escape", default=False, group="Prompt", help=help)


def unescape(text: str) -> str:
    """Return a text with the bytes that its escape sequences stand for. Raises UsageError if that is not UTF-8."""
    try:
        return _SEQUENCE.sub(_byte, os.fsencode(text)).decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--escape: the text is not UTF-8: byte {error.start}") from None


def _byte(sequence: re.Match[bytes]) -> bytes:
    """Return the byte that a match of ``_SEQUENCE`` stands for."""
    return bytes.fromhex(sequence[1].decode()) if sequence[1] else _BYTES.get(sequence[2], sequence[2])
