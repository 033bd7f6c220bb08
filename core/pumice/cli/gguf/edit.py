"""``pumice gguf set`` and ``rename``: change metadata and names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.confined import FileCommand
from pumice.cli.files import EditedFile, InputFile, OutputFile
from pumice.cli.options import force_option, no_sandbox_option
from pumice.cli.progress import show_progress
from pumice.cli.vocabulary import option
from pumice.wording import did_you_mean, not_utf8

if TYPE_CHECKING:
    from pumice.gguf import EncodedValue, Metadata

out_option = option(
    "-o",
    "--output",
    "out",
    aliases=("--out",),
    type=OutputFile(),
    metavar="FILE",
    group="Output",
    help="Write a changed copy to FILE.  [default: change FILE itself]",
)


@click.command("set", cls=FileCommand)
@click.argument("file", type=EditedFile())
@click.argument("assignments", nargs=-1, metavar="[KEY=VALUE]...")
@option(
    "--from-file",
    "files",
    multiple=True,
    type=InputFile(lambda item: [item.partition("=")[2]]),
    metavar="KEY=PATH",
    help="Set a string to the text of a file. Repeatable.",
)
@option("--remove", multiple=True, metavar="KEY", help="Remove a key. Repeatable.")
@out_option
@force_option
@no_sandbox_option
def set_command(
    file: str,
    assignments: tuple[str, ...],
    files: tuple[str, ...],
    remove: tuple[str, ...],
    out: str | None,
    force: bool,
) -> None:
    """Set metadata of FILE.

    A key keeps its type; a new key needs one: KEY=TYPE:VALUE, with types as `pumice gguf show` names them. Values are
    JSON (true, 1e-5, [1, 2]), strings are plain. Tensors are copied only if the change does not fit in place. After an
    error the file is unchanged.
    """
    from pumice.gguf.edit import edit
    from pumice.gguf.parser import parse

    if not assignments and not files and not remove:
        raise click.UsageError("nothing to set: give KEY=VALUE, --from-file or --remove")
    metadata = parse(Path(file)).metadata
    values = dict(parse_assignment(item, metadata) for item in assignments)
    values.update(string_from_file(item) for item in files)
    with show_progress("copying") as progress:
        edit(file, out, values=values, removed=remove, force=force, progress=progress)


@click.command("rename", cls=FileCommand)
@click.argument("file", type=EditedFile())
@click.argument("names", nargs=-1, required=True, metavar="OLD=NEW...")
@option("--key", "keys", is_flag=True, help="Rename metadata keys, not tensors.")
@out_option
@force_option
@no_sandbox_option
def rename_command(file: str, names: tuple[str, ...], keys: bool, out: str | None, force: bool) -> None:
    """Rename tensors or metadata keys of FILE."""
    from pumice.gguf.edit import edit

    renamed = dict(divide(item, "OLD=NEW") for item in names)
    with show_progress("copying") as progress:
        changes: dict[str, Any] = {"renamed_keys" if keys else "renamed_tensors": renamed}
        edit(file, out, force=force, progress=progress, **changes)


def parse_assignment(item: str, metadata: Metadata) -> tuple[str, EncodedValue]:
    """Parse ``KEY=VALUE`` or ``KEY=TYPE:VALUE``. Raises UsageError."""
    from pumice.gguf.values import type_names

    key, text = divide(item, "KEY=VALUE")
    name, colon, rest = text.partition(":")
    if colon and name.removesuffix("[]") in type_names():
        return key, _value(key, rest, name)
    if key not in metadata:
        hint = did_you_mean(key, metadata)
        raise click.UsageError(f"{key!r} is a new key: give its type, as in {key}=str:{text}{hint}")
    return key, _value(key, text, metadata.encoded(key).type_name)


def _value(key: str, text: str, type_name: str) -> EncodedValue:
    """Parse the value of a key. Raises GGUFError that names the key."""
    from pumice.errors import GGUFError
    from pumice.gguf.values import parse_value

    try:
        return parse_value(text, type_name)
    except GGUFError as error:
        raise GGUFError(f"metadata key {key!r}: {error}") from None


def string_from_file(item: str) -> tuple[str, EncodedValue]:
    """Parse ``KEY=PATH``, and return the key and the file's text."""
    from pumice.gguf import encode

    key, path = divide(item, "KEY=PATH")
    try:
        return key, encode(Path(path).read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise click.ClickException(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{path}: {not_utf8(error)}") from None


def divide(item: str, form: str) -> tuple[str, str]:
    """Split an item at its first ``=``. Raises UsageError that shows the form."""
    before, equals, after = item.partition("=")
    if not before or not equals:
        raise click.UsageError(f"expected {form}, not {item!r}")
    return before, after
