"""``pumice embed``: texts as vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pumice.cli.options import json_option, load_model, load_options, model_argument
from pumice.cli.run import read_prompt


@click.command("embed")
@model_argument
@click.option("-p", "--prompt", "texts", multiple=True, help="A text; give it several times for several texts.")
@click.option("-f", "--file", type=click.Path(path_type=Path), help="Read the texts, one a line; - or a pipe too.")
@click.option("--pooling", type=click.Choice(["mean", "cls", "last"]), help="Which hidden states count.")
@click.option("--dimensions", type=click.IntRange(min=1), help="Only so many of the first values.")
@click.option("--no-normalize", is_flag=True, help="Leave vectors as long as they are.")
@click.option("--query", help="Rank the texts: how well each answers this.")
@json_option
@load_options
def command(
    model: str,
    texts: tuple[str, ...],
    file: Path | None,
    pooling: Any,
    dimensions: int | None,
    no_normalize: bool,
    query: str | None,
    as_json: bool,
    **rest: Any,
) -> None:
    """Write each text's embedding.

    A line of numbers for each text; --json writes a list of lists. With --query, for models that rank texts, it is
    one score for each.
    """
    if query is not None and (dimensions or pooling or no_normalize):
        raise click.UsageError("--query gives scores: --dimensions, --pooling and --no-normalize are for vectors")
    wanted = list(texts) or [line for line in read_prompt(None, file).splitlines() if line]
    if not wanted:
        raise click.UsageError("there is no text: give some with -p, or one a line with -f or a pipe")
    with load_model(model, rest) as loaded:
        if query is not None:
            values = loaded.rerank(query, wanted)
            lines = [f"{score:.6g}" for score in values]
        else:
            options = {"normalize": not no_normalize, "dimensions": dimensions, "pooling": pooling}
            values = loaded.embed(wanted, **options).tolist()
            lines = [" ".join(f"{value:.6g}" for value in row) for row in values]
    click.echo(json.dumps(values) if as_json else "\n".join(lines))
