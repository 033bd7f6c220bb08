"""``pumice gguf split`` and ``merge``: a model in several files, and in one again."""

from __future__ import annotations

from functools import partial

import click

from pumice.cli.options import force_option
from pumice.cli.progress import show_progress

UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}  # bytes, as gguf-split counts them
MAX_TENSORS = 128  # of a part, where nothing else is said


def parse_size(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """``500M`` in bytes."""
    if text is None:
        return None
    number, unit = (text[:-1], UNITS[text[-1].upper()]) if text[-1:].upper() in UNITS else (text, 1)
    if not number.isdecimal() or int(number) == 0:
        raise click.BadParameter(f"{text!r} is not a size such as 500M or 4G")
    return int(number) * unit


@click.command("split")
@click.argument("file", type=click.Path())
@click.argument("out", type=click.Path())
@click.option("--max-size", callback=parse_size, metavar="SIZE", help="Most bytes of tensors in a part, as 500M or 4G.")
@click.option("--max-tensors", type=click.IntRange(min=1), help=f"Most tensors in a part; {MAX_TENSORS} if not given.")
@click.option("--no-tensor-first", is_flag=True, help="The first part has the metadata alone.")
@force_option
def split_command(
    file: str, out: str, max_size: int | None, max_tensors: int | None, no_tensor_first: bool, force: bool
) -> None:
    """Write FILE in parts.

    They are OUT-00001-of-0000N.gguf and so on, as llama-gguf-split writes them.
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
    click.echo("\n".join(map(str, paths)))


@click.command("merge")
@click.argument("file", type=click.Path())
@click.argument("out", type=click.Path())
@force_option
def merge_command(file: str, out: str, force: bool) -> None:
    """Write a split model as one file.

    FILE is any of its parts.
    """
    from pumice.gguf.copy import merge

    with show_progress("merging") as progress:
        merge(file, out, force=force, progress=progress)
