"""``pumice control-vector``: a control vector of pairs of prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from pumice.cli.options import force_option, load_model, load_options, model_argument
from pumice.cli.progress import show_progress

if TYPE_CHECKING:
    from pumice.model import Model

ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"'": b"'", b'"': b'"', b"\\": b"\\"}


@click.command("control-vector")
@model_argument
@click.option(
    "--positive-file", "positive", type=click.Path(path_type=Path), required=True, help="Prompts, a line each."
)
@click.option("--negative-file", "negative", type=click.Path(path_type=Path), required=True, help="As many others.")
@click.option(
    "--method",
    type=click.Choice(["pca", "mean"]),
    default="pca",
    show_default=True,
    help="A layer's direction: where its differences are largest, or their mean.",
)
@click.option(
    "-o", "--output", "out", default="control_vector.gguf", type=click.Path(path_type=Path), show_default=True
)
@force_option
@load_options
def command(
    model: str, positive: Path, negative: Path, method: Literal["pca", "mean"], out: Path, force: bool, **rest: Any
) -> None:
    """Make a control vector of pairs of prompts.

    It leads towards the positive ones, and away from the negative. Those of a line differ in what the vector should
    control, and in nothing else: the same words once by someone happy, once by someone sad. \\n and the like stand for
    what they do in C.
    """
    from pumice.control_vector import Contrast, write_directions
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
    click.echo(f"{out}: {len(directions)} directions of {len(pairs)} pairs", err=True)


def read_pairs(positive: Path, negative: Path) -> list[tuple[str, str]]:
    """The lines of two files, less empty ones, beside each other."""
    ours, others = list(read_lines(positive)), list(read_lines(negative))
    if len(ours) != len(others) or not ours:
        raise click.ClickException(
            f"{positive} has {len(ours)} prompts and {negative} {len(others)}: give as many, at least one"
        )
    return list(zip(ours, others, strict=True))


def read_lines(path: Path) -> Iterator[str]:
    """Lines that are not empty, with escapes as llama.cpp has them."""
    try:
        lines = path.read_bytes().splitlines()
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
    """The tokens of both prompts, the shorter one filled up with what a space becomes."""
    both = [model.tokenize(text, add_special=model.tokenizer.add_bos) for text in pair]
    length = max(map(len, both))
    filler = model.tokenize(" ", add_special=False)[-1:] or both[0][-1:]
    return [tokens + filler * (length - len(tokens)) for tokens in both]


def _escaped(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 16)]) if escape[1] else ESCAPES[escape[2]]
