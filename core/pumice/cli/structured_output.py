"""Options of the form of texts: a grammar or a JSON schema, given as text or in a file, or a pattern."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pumice.cli.files import InputFile
from pumice.cli.options import CommandFunction, read_text
from pumice.cli.vocabulary import Decorator, defined, option, with_options
from pumice.options import OUTPUT

_FORMS = ("grammar", "grammar_file", "json_schema", "json_schema_file", "regex")


def output_options(about: str = "the text", advanced: bool = False) -> Callable[[CommandFunction], CommandFunction]:
    """Return the decorator of the options that ``take_output`` takes.

    Args:
        about: what has the form, in ``--help``.
        advanced: True to show the options with ``--help-all`` only.
    """

    def file_option(*names: str, noun: str) -> Decorator:
        help = f"Read the {noun} from FILE."
        path = InputFile(path_type=Path)
        return option(*names, type=path, metavar="FILE", group="Structured output", advanced=advanced, help=help)

    added = [
        defined(
            OUTPUT["grammar"],
            metavar="TEXT",
            callback=_read_argument,
            advanced=advanced,
            help=f"Grammar of {about}, in GBNF or Lark; @FILE reads a file.",
        ),
        file_option("--grammar-file", noun="grammar"),
        defined(
            OUTPUT["json_schema"],
            type=str,
            metavar="JSON",
            callback=_read_argument,
            advanced=advanced,
            help=f"JSON schema of {about}; @FILE reads a file.",
        ),
        file_option("-jf", "--json-schema-file", noun="JSON schema"),
        defined(
            OUTPUT["regex"], metavar="TEXT", advanced=advanced, help=f"Regular expression that matches all of {about}."
        ),
    ]

    return lambda command: with_options(command, added)


def take_output(options: dict[str, Any]) -> dict[str, str]:
    """Remove the options of the form, and return the one that is given. Raises UsageError for several."""
    values = {name: options.pop(name) for name in _FORMS}
    named = {name: value for name, value in values.items() if value is not None}
    if not named:
        return {}
    if len(named) > 1:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in named)
        raise click.UsageError(f"give only one of {flags}")
    ((name, value),) = named.items()
    form = name.removesuffix("_file")
    return {form: read_text(f"the {_NOUNS[form]}", value) if isinstance(value, Path) else value}


_NOUNS = {"grammar": "grammar", "json_schema": "JSON schema"}


def _read_argument(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """Return an option's text, or the text of the file that it names after an @."""
    name = max(param.opts, key=len)
    if text is None or not text.startswith("@"):
        if text and os.path.isfile(text):
            raise click.BadParameter(f"{text!r} is a file; {name} @{text} reads it", ctx=ctx, param=param)
        return text
    return read_text(f"the value of {name}", Path(text[1:]))
