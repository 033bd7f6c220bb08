"""Text on standard output and standard error, which may come from files and servers that nobody trusts.

Commands write text by ``echo`` alone, and JSON with the escapes of ``json.dumps``. The text that a model generates is
written as it is.
"""

from __future__ import annotations

import sys

import click

from pumice.wording import printable

_LAYOUT = "\n\t"  # control characters of texts of several lines


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
    click.secho(shown, err=err, nl=nl, bold=bold, dim=dim)


def echo_value(text: str) -> None:
    """Write a value: as by ``echo`` on a terminal, and unchanged to a file or a pipe."""
    if sys.stdout.isatty():
        echo(text)
    else:
        click.echo(text.encode("utf-8", "backslashreplace"))
