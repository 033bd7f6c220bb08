"""``pumice perplexity``: how well a model predicts a text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pumice.cli.options import force_option, json_option, load_model, load_options, model_argument
from pumice.cli.run import read_prompt

if TYPE_CHECKING:
    from pumice.kl_divergence import Divergence
    from pumice.model import Model
    from pumice.perplexity import Estimate

Step = TypeVar("Step")


@click.command("perplexity")
@model_argument
@click.option("-f", "--file", type=click.Path(path_type=Path), help="The text.")
@click.option("--chunks", type=click.IntRange(min=1), help="Read only so many chunks.")
@click.option("--save-logits", type=click.Path(), help="Write what the model predicts, to compare others with.")
@click.option("--kl-divergence-base", "base", type=click.Path(), help="Compare with what another model has predicted.")
@json_option
@force_option
@load_options
def command(
    model: str,
    file: Path | None,
    chunks: int | None,
    save_logits: str | None,
    base: str | None,
    as_json: bool,
    force: bool,
    **rest: Any,
) -> None:
    """Measure the perplexity of MODEL on a text.

    Counted as llama-perplexity does, in chunks of --n-ctx tokens, 512 if not given. A terminal shows the estimate as it
    becomes better. With --kl-divergence-base the text is that of the other model's file, which llama-perplexity can
    write, too.
    """
    from pumice.kl_divergence import context_of, kl_divergence, save_predictions
    from pumice.perplexity import perplexity

    if (file is None) == (base is None):
        raise click.UsageError("give either --file or --kl-divergence-base")
    if base is not None and (save_logits or chunks):
        raise click.UsageError("--save-logits and --chunks need --file")
    rest["n_ctx"] = n_ctx = (context_of(base) if base else rest["n_ctx"]) or 512
    text = "" if base else read_prompt(None, file)
    with load_model(model, rest) as loaded:
        bos = loaded.tokenizer.bos if loaded.tokenizer.add_bos else None
        if base is not None:
            divergence = last(kl_divergence(loaded, base, bos=bos), lambda each: each.perplexity)
            facts, lines = divergence.facts(), divergence_lines(divergence)
        else:
            ids = text_ids(loaded, text)
            steps = (
                save_predictions(save_logits, loaded, ids, n_ctx, bos=bos, n_chunks=chunks, force=force)
                if save_logits
                else perplexity(loaded, ids, n_ctx, bos=bos, n_chunks=chunks)
            )
            estimate = last(steps, lambda each: each)
            facts, lines = asdict(estimate), [estimate_line(estimate, n_ctx)]
    click.echo(json.dumps({**facts, "n_ctx": n_ctx, "model": model}) if as_json else "\n".join(lines))


def text_ids(model: Model, text: str, parse_special: bool = False) -> list[int]:
    """The tokens of a text, with BOS if the model wants it and never EOS."""
    ids = model.tokenize(text, add_special=True, parse_special=parse_special)
    return ids[:-1] if model.tokenizer.add_eos and ids[-1:] == [model.tokenizer.eos] else ids


def last(steps: Iterator[Step], estimate: Callable[[Step], Estimate]) -> Step:
    """The last step; a terminal sees each."""
    shown = sys.stderr.isatty()
    for step in steps:
        if shown:
            now = estimate(step)
            click.echo(f"\rchunk {now.n_chunks}: {now.perplexity:.4f} +/- {now.error:.4f}  ", nl=False, err=True)
    if shown:
        click.echo(err=True)
    return step


def estimate_line(estimate: Estimate, n_ctx: int) -> str:
    counted = f"{estimate.n_tokens} tokens in {estimate.n_chunks} chunks of {n_ctx}"
    return f"{estimate.perplexity:.4f} +/- {estimate.error:.5f} ({counted})"


def divergence_lines(divergence: Divergence) -> list[str]:
    """For people; percentiles are of single tokens."""
    of = divergence.percentiles
    percentiles = f"median {of[50]:.6f}, 90 % {of[90]:.6f}, 99 % {of[99]:.6f}, largest {of[100]:.6f}"
    ours = divergence.perplexity
    return [
        f"perplexity      {ours.perplexity:.4f} +/- {ours.error:.5f}, base {divergence.base:.4f}",
        f"KL divergence   {divergence.divergence:.6f} +/- {divergence.error:.6f}, {percentiles}",
        f"same top token  {100 * divergence.same_top:.3f} %",
        f"probability     differs by {100 * divergence.probability_rms:.3f} % (RMS)",
    ]
