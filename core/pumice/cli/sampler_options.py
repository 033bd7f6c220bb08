"""Options of the sampler chain that are no single numbers: its samplers, and lists of strings and biases."""

from __future__ import annotations

from typing import Any

import click

from pumice.cli.llama_samplers import read_samplers
from pumice.cli.options import CommandFunction
from pumice.cli.vocabulary import defined, option, with_options
from pumice.options import ENGINE, SAMPLING


def _read_names(ctx: click.Context, param: click.Parameter, names: str | None) -> list[str] | None:
    return None if names is None else _read(names.split(";"))


def _read_letters(ctx: click.Context, param: click.Parameter, letters: str | None) -> list[str] | None:
    return None if letters is None else _read(letters)


def _read(samplers: str | list[str]) -> list[str]:
    try:
        return read_samplers(samplers)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_CHAIN = [
    defined(
        ENGINE["samplers"],
        metavar="NAMES",
        callback=_read_names,
        advanced=True,
        help="Names of the samplers, separated by semicolons.",
    ),
    option(
        "--sampler-seq",
        aliases=("--sampling-seq",),
        metavar="LETTERS",
        callback=_read_letters,
        group="Sampling",
        advanced=True,
        help="Samplers by llama.cpp's letters, such as kpmt.",
    ),
    defined(
        SAMPLING["dry_sequence_breakers"],
        multiple=True,
        metavar="TEXT",
        advanced=True,
        help="String at which a repetition ends for DRY; none: at no string. Repeatable.",
    ),
]


def chain_options(command: CommandFunction) -> CommandFunction:
    """Add the options that ``take_chain`` takes."""
    return with_options(command, _CHAIN)


def take_chain(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of the chain, and return those that were set: ``samplers``, ``dry_sequence_breakers``."""
    chain: dict[str, Any] = {}
    if breakers := options.pop("dry_sequence_breakers"):
        chain["dry_sequence_breakers"] = [] if breakers == ("none",) else list(breakers)
    names, letters = options.pop("samplers"), options.pop("sampler_seq")
    if names and letters:
        raise click.UsageError("give only one of --samplers and --sampler-seq")
    if names or letters:
        chain["samplers"] = names or letters
    return chain


def _read_biases(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[int, float] | None:
    """Parse values such as ``15043+1`` and ``15043-1``."""
    biases: dict[int, float] = {}
    for value in values:
        sign = "-" if "-" in value else "+"
        token, _, bias = value.partition(sign)
        try:
            biases[int(token)] = float(sign + bias)
        except ValueError:
            raise click.BadParameter(f"expected TOKEN+BIAS or TOKEN-BIAS, such as 15043-1, not {value!r:.60}") from None
    return biases or None


logit_bias_option = option(
    "-l",
    "--logit-bias",
    "logit_bias",
    multiple=True,
    metavar="TOKEN+BIAS",
    callback=_read_biases,
    group="Sampling",
    advanced=True,
    help="Number added to the logit of a token id, such as 15043+1 or 15043-1; pumice tokenize shows ids. Repeatable.",
)
