"""``pumice embed``: embeddings of texts, and scores of rerankers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from pumice.chat.mixed import MARKER, Media
from pumice.cli.named_models import load_model
from pumice.cli.options import advised_on_arguments, json_option, load_options, model_argument
from pumice.cli.output import echo
from pumice.cli.prompt import SeeingCommand, chosen, file_option, media_option, read_prompt, with_media
from pumice.cli.vocabulary import option


class EmbedCommand(SeeingCommand):
    """`pumice embed`, whose texts are values of ``-p``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with advised_on_arguments(ctx, "give each text with -p"):
            return super().parse_args(ctx, args)


@click.command("embed", cls=EmbedCommand)
@model_argument
@option("-p", "--prompt", "texts", multiple=True, metavar="TEXT", group="Prompt", help="Text to embed. Repeatable.")
@media_option(
    "image",
    "images",
    "Image to embed, for a model that sees; before the texts, or within the one that has <__media__>.",
)
@media_option("audio", "sounds", "Sound to embed, for an audio model: like --image.")
@file_option("Read texts from FILE, one per line; - reads standard input, as a pipe does.")
@option(
    "--pooling",
    type=click.Choice(["mean", "cls", "last"]),
    group="Embeddings",
    help="Pooling of the tokens' hidden states.  [default: the model's]",
)
@option(
    "--dimensions",
    type=click.IntRange(1),
    group="Embeddings",
    help="Number of leading values to keep of each embedding.  [default: all]",
)
@option(
    "--no-normalize", is_flag=True, group="Embeddings", help="Keep the length of the vectors, which is 1 otherwise."
)
@option("--truncate", is_flag=True, group="Embeddings", help="Cut texts that are longer than the context.")
@option(
    "--query", metavar="TEXT", group="Embeddings", help="Score each text by its relevance to this query (rerankers)."
)
@json_option
@load_options
def command(
    model: str,
    texts: tuple[str, ...],
    images: tuple[Path, ...],
    sounds: tuple[Path, ...],
    file: Path | None,
    truncate: bool,
    query: str | None,
    as_json: bool,
    **rest: Any,
) -> None:
    """Write the embeddings of texts, images and sounds.

    Each gives one line of numbers; --json writes a list of lists. A text with the mark <__media__> is one input with
    the images and sounds, which else are inputs of their own before the texts. With --query, for rerankers, each text
    gives one score.
    """
    vectors = {"pooling": rest.pop("pooling"), "dimensions": rest.pop("dimensions")}
    vectors["normalize"] = not rest.pop("no_normalize")
    if query is not None and vectors != {"pooling": None, "dimensions": None, "normalize": True}:
        raise click.UsageError("--query gives scores: --dimensions, --pooling and --no-normalize are for vectors")
    if query is not None and (images or sounds):
        raise click.UsageError("--query scores texts: leave out --image and --audio")
    from_file = not texts and not (images or (sounds and file is None))
    inputs = list(texts) or ([line for line in read_prompt(None, file).splitlines() if line] if from_file else [])
    mixed = _mixed(inputs, images, sounds)
    if not mixed:
        raise click.UsageError("no text: give texts with -p, or one per line with -f or a pipe")
    with load_model(chosen(model, images), rest) as loaded:
        if query is not None:
            values = loaded.rerank(query, inputs, truncate=truncate)
            lines = [f"{score:.6g}" for score in values]
        else:
            values = loaded.embed(mixed, truncate=truncate, **vectors).tolist()
            lines = [" ".join(f"{value:.6g}" for value in row) for row in values]
    echo(json.dumps(values) if as_json else "\n".join(lines))


def _mixed(
    texts: Sequence[str], images: Sequence[Path], sounds: Sequence[Path]
) -> list[str | Media | list[str | Media]]:
    """Return the inputs: images, sounds and texts, or texts one of which has the images and sounds at its marks."""
    marked = [text for text in texts if MARKER in text]
    if not images and not sounds:
        return [*texts]
    if len(marked) > 1:
        raise click.UsageError(f"only one text may have marks {MARKER}, not {len(marked)}")
    if not marked:
        return [*with_media("", images, sounds)[:-1], *texts]
    return [with_media(text, images, sounds) if text in marked else text for text in texts]
