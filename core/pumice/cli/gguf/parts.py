"""``pumice gguf split`` and ``merge``: divide a model into several files, and merge them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import click

from pumice.cli.confined import FileCommand
from pumice.cli.files import ModelPath, OutputFile, OutputPrefix
from pumice.cli.options import force_option, no_sandbox_option
from pumice.cli.output import echo
from pumice.cli.progress import show_progress
from pumice.cli.vocabulary import option
from pumice.errors import ConfigError
from pumice.machine import parse_size as parse_bytes

UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}  # bytes, as gguf-split counts them
MOST_DIGITS = 20  # of a number of bytes
MAX_TENSORS = 128  # default maximum tensors per part


def parse_size(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Parse a size such as ``500M``, which is decimal as in gguf-split, or ``4GiB`` to bytes. Raises BadParameter."""
    if text is None:
        return None
    number, unit = (text[:-1], UNITS[text[-1].upper()]) if text[-1:].upper() in UNITS else (text, 1)
    with suppress(ConfigError):
        size = int(number) * unit if number.isdecimal() and len(number) < MOST_DIGITS else parse_bytes(text)
        if size > 0:
            return size
    raise click.BadParameter(f"{text!r} is not a size such as 500M, 4G or 4GiB")


max_size_option = option(
    "--split-max-size",
    "max_size",
    aliases=("--max-size",),
    callback=parse_size,
    metavar="SIZE",
    group="Output",
    help="Maximum bytes of tensors in a part, such as 500M (decimal), 4G or 4GiB.",
)
max_tensors_option = option(
    "--split-max-tensors",
    "max_tensors",
    aliases=("--max-tensors",),
    type=click.IntRange(1),
    group="Output",
    help="Maximum number of tensors in a part.",
)


@click.command("split", cls=FileCommand)
@click.argument("file", type=ModelPath())
@click.argument("out", type=OutputPrefix())
@max_size_option
@max_tensors_option
@option(
    "--no-tensor-first-split",
    "no_tensor_first",
    aliases=("--no-tensor-first",),
    is_flag=True,
    group="Output",
    help="Write a first part with metadata only.",
)
@force_option
@no_sandbox_option
def split_command(
    file: str, out: str, max_size: int | None, max_tensors: int | None, no_tensor_first: bool, force: bool
) -> None:
    """Write FILE in several parts.

    The parts are OUT-00001-of-0000N.gguf and so on, as llama-gguf-split writes them; by default with 128 tensors each.
    """
    from pumice.gguf.copy import parts_by_number, parts_by_size, split

    if max_size and max_tensors:
        raise click.UsageError("give either --max-size or --max-tensors")
    by = (
        partial(parts_by_size, most=max_size) if max_size else partial(parts_by_number, most=max_tensors or MAX_TENSORS)
    )
    with show_progress("splitting") as progress:
        paths = split(
            file, out, lambda tensors: [*([0] if no_tensor_first else []), *by(tensors)], force=force, progress=progress
        )
    echo("\n".join(map(str, paths)))


@click.command("merge", cls=FileCommand)
@click.argument("file", type=ModelPath())
@click.argument("out", type=OutputFile())
@force_option
@no_sandbox_option
def merge_command(file: str, out: str, force: bool) -> None:
    """Write a split model as one file.

    FILE is any part of the model.
    """
    from pumice.gguf.copy import merge

    with show_progress("merging") as progress:
        merge(file, out, force=force, progress=progress)
