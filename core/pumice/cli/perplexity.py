"""``pumice perplexity``: how well a model predicts a text."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from pumice.cli.options import json_option, load_model, load_options, model_argument


@click.command("perplexity")
@model_argument
@click.option("-f", "--file", required=True, type=click.Path(path_type=Path), help="The text.")
@click.option("--chunks", type=click.IntRange(min=1), help="Read only so many chunks.")
@json_option
@load_options
def command(model: str, file: Path, chunks: int | None, as_json: bool, **rest: Any) -> None:
    """Measure the perplexity of MODEL on a text.

    Counted as llama-perplexity does, in chunks of --n-ctx tokens, 512 if not given. A terminal shows the estimate as it
    becomes better.
    """
    from pumice.cli.run import read_prompt
    from pumice.perplexity import perplexity

    text = read_prompt(None, file)
    n_ctx = rest["n_ctx"] = rest["n_ctx"] or 512
    with load_model(model, rest) as loaded:
        tokenizer = loaded.tokenizer
        ids = tokenizer.tokenize(text, add_special=True, parse_special=False)
        if tokenizer.add_eos and ids[-1:] == [tokenizer.eos]:
            ids.pop()
        bos = tokenizer.bos if tokenizer.add_bos else None
        total = min(chunks or len(ids), len(ids) // n_ctx)
        for estimate in perplexity(loaded, ids, n_ctx, bos=bos, n_chunks=chunks):
            if sys.stderr.isatty():
                click.echo(f"\r{estimate.n_chunks}/{total} chunks: {estimate.perplexity:.4f}  ", nl=False, err=True)
    if sys.stderr.isatty():
        click.echo(err=True)
    if as_json:
        facts = {"perplexity": estimate.perplexity, "error": estimate.error, "tokens": estimate.n_tokens}
        click.echo(json.dumps({**facts, "chunks": estimate.n_chunks, "n_ctx": n_ctx, "model": model}))
    else:
        click.echo(
            f"{estimate.perplexity:.4f} +/- {estimate.error:.5f} "
            f"({estimate.n_tokens} tokens in {estimate.n_chunks} chunks of {n_ctx})"
        )
