"""``pumice create``: make a model of another one and a Modelfile."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from pumice.cli.messages import say
from pumice.cli.output import echo
from pumice.cli.vocabulary import option
from pumice.wording import not_utf8, printable


@click.command("create")
@click.argument("name")
@option(
    "-f",
    "--file",
    type=click.Path(path_type=Path),
    default=Path("Modelfile"),
    metavar="FILE",
    help="Modelfile.  [default: Modelfile in this folder]",
)
def command(name: str, file: Path) -> None:
    """Make a model NAME of another one, by a Modelfile.

    FROM names a GGUF file or a model; PARAMETER, SYSTEM, MESSAGE, TEMPLATE (a name or Jinja) and ADAPTER change how it
    answers. `pumice list` shows it, `pumice rm` removes it, and all commands take NAME as a model.
    """
    from pumice.config import Layer, check_named_files
    from pumice.hub.created import create_model
    from pumice.hub.modelfile import MAX_BYTES, catalogue_record, parse_modelfile

    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise click.ClickException(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file}: {not_utf8(error)}") from None
    if len(data) > MAX_BYTES:
        raise click.ClickException(f"{file}: more than {MAX_BYTES} bytes, which a Modelfile has at most")
    parsed = parse_modelfile(text.replace("\r\n", "\n"), str(file))
    folder = file.absolute().parent
    record = catalogue_record(parsed, folder)
    check_named_files(Layer(str(file), record), folder)
    _check_present(record, file)
    path = create_model(name, record)
    for parameter in parsed.ignored:
        say("warning", f"PARAMETER {parameter} has no effect here")
    echo(f"created {name.removesuffix(':latest')} from {printable(parsed.base)}: {path}", err=True)


def _check_present(record: Mapping[str, Any], file: Path) -> None:
    """Raise ClickException if a model or an adapter is a path, or the name of a GGUF file, that does not exist."""
    base: str = record["model"]
    is_path = os.path.isabs(base) or (base.endswith(".gguf") and "/" not in base)
    named = [("FROM", base)] if is_path else []
    for instruction, path in [*named, *(("ADAPTER", path) for path in record.get("adapters", {}).values())]:
        if not os.path.exists(path):
            raise click.ClickException(f"{file}: {instruction}: {printable(path)}: no such file")
