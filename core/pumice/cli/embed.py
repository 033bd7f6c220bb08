"""``pumice embed``: embeddings of texts, and scores of rerankers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.options import json_option, load_model, load_options, model_argument
from pumice.cli.run import file_option, read_prompt
from pumice.cli.vocabulary import option


@click.command("embed", cls=ConfinedCommand)
@model_argument
@option("-p", "--prompt", "texts", multiple=True, metavar="TEXT", group="Prompt", help="Text to embed. Repeatable.")
@file_option("Read texts from FILE, one per line; - reads standard input, as a pipe does.")
@option(
    "--pooling",
    type=click.Choice(["mean", "cls", "last"]),
    group="Embeddings",
    help="Pooling of the tokens' hidden states.  [default: the model's]",
)
@option(
    "--dimensions",
    type=click.IntRange(min=1),
    metavar="N",
    group="Embeddings",
    help="Number of leading values to keep of each embedding.  [default: all]",
)
@option(
    "--no-normalize", is_flag=True, group="Embeddings", help="Keep the length of the vectors, which is 1 otherwise."
)
@option(
    "--query", metavar="TEXT", group="Embeddings", help="Score each text by its relevance to this query (rerankers)."
)
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
    """Write the embeddings of texts.

    Each text gives one line of numbers; --json writes a list of lists. With --query, for rerankers, each text gives one
    score.
    """
    if query is not None and (dimensions or pooling or no_normalize):
        raise click.UsageError("--query gives scores: --dimensions, --pooling and --no-normalize are for vectors")
    inputs = list(texts) or [line for line in read_prompt(None, file).splitlines() if line]
    if not inputs:
        raise click.UsageError("no text: give texts with -p, or one per line with -f or a pipe")
    with load_model(model, rest) as loaded:
        if query is not None:
            values = loaded.rerank(query, inputs)
            lines = [f"{score:.6g}" for score in values]
        else:
            options = {"normalize": not no_normalize, "dimensions": dimensions, "pooling": pooling}
            values = loaded.embed(inputs, **options).tolist()
            lines = [" ".join(f"{value:.6g}" for value in row) for row in values]
    click.echo(json.dumps(values) if as_json else "\n".join(lines))
