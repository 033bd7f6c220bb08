"""``pumice control-vector``: make a control vector from pairs of prompts."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.files import InputFile, OutputFile
from pumice.cli.named_models import load_model
from pumice.cli.options import force_option, load_options, model_argument
from pumice.cli.output import echo
from pumice.cli.progress import show_progress
from pumice.cli.vocabulary import option

if TYPE_CHECKING:
    from pumice.model import Model

ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"'": b"'", b'"': b'"', b"\\": b"\\"}


@click.command("control-vector", cls=ConfinedCommand)
@model_argument
@option(
    "--positive-file",
    "positive",
    type=InputFile(path_type=Path),
    required=True,
    metavar="FILE",
    group="Prompt",
    help="Prompts that the vector leads towards, one per line.",
)
@option(
    "--negative-file",
    "negative",
    type=InputFile(path_type=Path),
    required=True,
    metavar="FILE",
    group="Prompt",
    help="Prompts that the vector leads away from: as many lines.",
)
@option(
    "--method",
    type=click.Choice(["pca", "mean"]),
    default="pca",
    help="Direction of a layer: the first principal component of the differences, or their mean.",
)
@option(
    "-o",
    "--output",
    "out",
    default="control_vector.gguf",
    type=OutputFile(path_type=Path),
    metavar="FILE",
    group="Output",
    help="File to write.",
)
@force_option
@load_options
def command(
    model: str, positive: Path, negative: Path, method: Literal["pca", "mean"], out: Path, force: bool, **rest: Any
) -> None:
    """Make a control vector from pairs of prompts.

    The vector leads towards the positive prompts and away from the negative ones. The two prompts of a line differ only
    in what the vector should control: the same words once by someone happy, once by someone sad. Escapes such as \\n
    stand for the same characters as in C.
    """
    from pumice.adapters.control_vector import Contrast, write_directions
    from pumice.gguf.output import check_output

    pairs = read_pairs(positive, negative)
    check_output(out, force)
    rest["observer"] = contrast = Contrast()
    with load_model(model, rest) as loaded:
        tokens = [tokenized(loaded, *pair) for pair in pairs]
        with show_progress("reading", unit="pair") as progress:
            for done, pair in enumerate(tokens, 1):
                contrast.add(loaded, *pair)
                progress(done, len(tokens))
        architecture = loaded.metadata["general.architecture"]
    directions = contrast.directions(method)
    write_directions(out, directions, architecture, force=force)
    echo(f"{out}: {len(directions)} directions of {len(pairs)} pairs", err=True)


def read_pairs(positive: Path, negative: Path) -> list[tuple[str, str]]:
    """Return pairs of lines of two files, without empty lines."""
    ours, others = list(read_lines(positive)), list(read_lines(negative))
    if len(ours) != len(others) or not ours:
        raise click.ClickException(
            f"{positive} has {len(ours)} prompts and {negative} {len(others)}: give equal numbers, at least one"
        )
    return list(zip(ours, others, strict=True))


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines that are not empty, with llama.cpp's escapes decoded."""
    try:
        lines = path.read_bytes().removeprefix(BOM_UTF8).splitlines()
    except OSError as error:
        raise click.ClickException(f"{path}: {(error.strerror or str(error)).lower()}") from None
    for number, line in enumerate(lines, 1):
        try:
            text = re.sub(rb"\\(?:x([0-9a-fA-F]{2})|([nrt'\"\\]))", _escaped, line).decode("utf-8")
        except UnicodeDecodeError:
            raise click.ClickException(f"{path}:{number}: is not UTF-8") from None
        if text:
            yield text


def tokenized(model: Model, *pair: str) -> list[list[int]]:
    """Return the tokens of both prompts, the shorter one padded with the last token of a space."""
    both = [model.tokenizer.tokenize(text, add_special=model.tokenizer.add_bos) for text in pair]
    length = max(map(len, both))
    filler = model.tokenizer.tokenize(" ", add_special=False)[-1:] or both[0][-1:]
    return [tokens + filler * (length - len(tokens)) for tokens in both]


def _escaped(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 16)]) if escape[1] else ESCAPES[escape[2]]
