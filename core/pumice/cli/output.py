"""Text on standard output and standard error, which may come from files, servers and models that nobody trusts.

Commands write text by ``echo``, JSON with the escapes of ``json.dumps``, and by ``echo_exact`` what programs may read,
such as generated text. Nothing of it controls a terminal.
"""

from __future__ import annotations

import sys

import click

from pumice.wording import printable

_LAYOUT = "\n\t"  # control characters of texts of several lines
_JOINERS = "\u200c\u200d"  # hidden characters that emoji and the letters of some scripts need


def echo(
    text: object = "", *, err: bool = False, nl: bool = True, bold: bool | None = None, dim: bool | None = None
) -> None:
    """Write text, with ``?`` for characters that control a terminal, are hidden or change the direction of text.

    Args:
        text: written as ``str`` shows it; its line breaks and tabs stay.
        err: write to standard error.
        nl: end the line.
        bold: on a terminal.
        dim: on a terminal.
    """
    shown = printable(str(text).replace("\r\n", "\n"), _LAYOUT)
    click.secho(shown, err=err, nl=nl, bold=bold, dim=dim)  # noqa: TID251 (the one function)


def echo_exact(text: str, *, nl: bool = True) -> None:
    """Write a value or generated text to standard output: unchanged to a file or a pipe, else as ``on_terminal``."""
    is_terminal = sys.stdout.isatty()
    click.echo(on_terminal(text) if is_terminal else text.encode("utf-8", "backslashreplace"), nl=nl)  # noqa: TID251


def on_terminal(text: str) -> str:
    """Return text for a terminal as ``echo`` writes it, but with joiners of emoji, and without carriage returns."""
    return printable(text.replace("\r", ""), _LAYOUT + _JOINERS)
