"""``pumice perplexity``: measure how well a model predicts a text or solves tasks."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.files import InputFile, OutputFile
from pumice.cli.named_models import load_model
from pumice.cli.options import force_option, json_option, load_options, model_argument
from pumice.cli.output import echo
from pumice.cli.prompt import read_prompt
from pumice.cli.vocabulary import option
from pumice.errors import RequestError
from pumice.wording import counted_as

if TYPE_CHECKING:
    from pumice.evaluate.choices import TaskScore
    from pumice.evaluate.kl_divergence import Divergence
    from pumice.evaluate.perplexity import Estimate
    from pumice.model import Model

Counted = TypeVar("Counted")
Measured = tuple[dict[str, Any], list[str]]
Measure = Callable[["Model"], Measured]

HELLASWAG_TASKS = 400  # maximum of HellaSwag's tasks without --tasks
KINDS = ("hellaswag", "winogrande", "multiple-choice")
"""Kinds of tasks, each of which is an option."""


@click.command("perplexity", cls=ConfinedCommand)
@model_argument
@option(
    "-f",
    "--file",
    aliases=("-bf", "--binary-file"),
    type=InputFile(path_type=Path),
    metavar="FILE",
    group="Prompt",
    help="Text to measure on, or file of tasks.",
)
@option("--chunks", type=click.IntRange(1), metavar="N", help="Maximum number of chunks to read.  [default: all]")
@option(
    "--save-logits",
    type=OutputFile(),
    metavar="FILE",
    group="Output",
    help="Write the model's predictions to FILE, to compare other models with.",
)
@option(
    "--kl-divergence-base",
    "base",
    type=InputFile(),
    metavar="FILE",
    help="Compare with the predictions of another model in FILE.",
)
@option("--hellaswag", is_flag=True, help="Choose endings of texts: six lines per task.")
@option("--winogrande", is_flag=True, help="Choose words: one line per task.")
@option("--multiple-choice", is_flag=True, help="Choose answers: llama.cpp's binary file.")
@option(
    "--tasks",
    "n_tasks",
    aliases=("--hellaswag-tasks", "--winogrande-tasks", "--multiple-choice-tasks"),
    type=click.IntRange(0),
    help="Maximum number of tasks; 0: all.  [default: 400 of HellaSwag, else all]",
)
@json_option
@force_option
@load_options
def command(
    model: str,
    file: Path | None,
    save_logits: str | None,
    chunks: int | None,
    base: str | None,
    n_tasks: int | None,
    as_json: bool,
    force: bool,
    **rest: Any,
) -> None:
    """Measure how well a model predicts or solves tasks.

    The result is the perplexity, or the share of right answers, as llama-perplexity computes them. A text is read in
    chunks of --ctx-size tokens (default: 512). A terminal shows the running estimate. With --kl-divergence-base the
    text is that of the file, which llama-perplexity can write, too.
    """
    kind = take_kind(rest)
    if n_tasks is not None and not kind:
        kinds = ", ".join(f"--{name}" for name in KINDS[:-1])
        raise click.UsageError(f"--tasks needs the kind of the tasks in --file: {kinds} or --{KINDS[-1]}")
    if (file is None) == (base is None):
        raise click.UsageError("give either --file or --kl-divergence-base")
    if (base is not None or kind) and (save_logits or chunks):
        raise click.UsageError("--save-logits and --chunks need a text with --file")
    if kind:
        measure = choose(file, kind, n_tasks)
    elif base is not None:
        measure, rest["n_ctx"] = compare(base)
    else:
        measure = predict(read_prompt(None, file), rest["n_ctx"] or 512, chunks, save_logits, force)
    n_ctx = rest["n_ctx"] = rest["n_ctx"] or 512
    with load_model(model, rest) as loaded:
        facts, lines = measure(loaded)
    echo(json.dumps({**facts, "n_ctx": n_ctx, "model": model}) if as_json else "\n".join(lines))


def take_kind(options: dict[str, Any]) -> str | None:
    """Remove the options of kinds of tasks, and return the kind; None without one. Raises UsageError for several."""
    kinds = [kind for kind in KINDS if options.pop(kind.replace("-", "_"))]
    if len(kinds) > 1:
        flags = " and ".join(f"--{kind}" for kind in kinds)
        raise click.UsageError(f"{flags} are different kinds of tasks; give one, the kind of those in --file")
    return kinds[0] if kinds else None


def predict(text: str, n_ctx: int, chunks: int | None, save_logits: str | None, force: bool) -> Measure:
    """Return the measurement of perplexity on a text, which may save the predictions."""
    from pumice.evaluate.kl_divergence import save_predictions
    from pumice.evaluate.perplexity import perplexity
    from pumice.local_engine import local_engine

    def measure(model: Model) -> Measured:
        ids, bos = text_ids(model, text), bos_of(model)
        steps = (
            save_predictions(save_logits, local_engine(model), ids, n_ctx, bos=bos, n_chunks=chunks, force=force)
            if save_logits
            else perplexity(local_engine(model), ids, n_ctx, bos=bos, n_chunks=chunks)
        )
        estimate = last(steps, running_line)
        return asdict(estimate), [estimate_line(estimate, n_ctx)]

    return measure


def compare(base: str) -> tuple[Measure, int]:
    """Return the measurement of the divergence from saved predictions, and their context length."""
    from pumice.evaluate.kl_divergence import context_of, kl_divergence
    from pumice.local_engine import local_engine

    def measure(model: Model) -> Measured:
        divergence = last(
            kl_divergence(local_engine(model), base, bos=bos_of(model)), lambda result: running_line(result.perplexity)
        )
        return divergence.facts(), divergence_lines(divergence)

    return measure, context_of(base)


def choose(file: Path | None, kind: str, n_tasks: int | None) -> Measure:
    """Return the measurement of the share of right answers to the tasks of a file."""
    from pumice.evaluate import choices
    from pumice.evaluate.tasks import read_tasks
    from pumice.local_engine import local_engine

    if file is None:
        raise click.UsageError(f"--{kind} needs its tasks with --file")
    if n_tasks is None:
        n_tasks = HELLASWAG_TASKS if kind == "hellaswag" else 0
    try:
        tasks = read_tasks(file.read_bytes(), kind, n_tasks)
    except OSError as error:
        raise click.ClickException(f"{file}: {(error.strerror or str(error)).lower()}") from None
    except RequestError as error:
        raise RequestError(f"{file}: {error}") from None

    def measure(model: Model) -> Measured:
        score = last(choices.measure(local_engine(model), lambda text: text_ids(model, text), tasks), score_line)
        return asdict(score), [score_line(score)]

    return measure


def bos_of(model: Model) -> int | None:
    """Return the BOS token if texts begin with it, else None."""
    return model.tokenizer.bos if model.tokenizer.add_bos else None


def text_ids(model: Model, text: str, parse_special: bool = False) -> list[int]:
    """Return the tokens of a text, with BOS if the model expects it, and without EOS."""
    ids = model.tokenizer.tokenize(text, add_special=True, parse_special=parse_special)
    return ids[:-1] if model.tokenizer.add_eos and ids[-1:] == [model.tokenizer.eos] else ids


def last(steps: Iterator[Counted], line: Callable[[Counted], str]) -> Counted:
    """Return the last step, and show a line for each step on a terminal."""
    shown = sys.stderr.isatty()
    for step in steps:
        if shown:
            echo(f"\r{line(step)}  ", nl=False, err=True)
    if shown:
        echo(err=True)
    return step


def running_line(estimate: Estimate) -> str:
    return f"chunk {estimate.n_chunks}: {estimate.perplexity:.4f} +/- {estimate.error:.4f}"


def score_line(score: TaskScore) -> str:
    """Return a line with the score in percent."""
    interval = f"95 %: {100 * score.low:.2f} to {100 * score.high:.2f}"
    of = f"{counted_as(score.n_tasks, 'task')}; guessing gives {100 * score.chance:.2f}"
    return f"{100 * score.accuracy:.4f} +/- {100 * score.error:.4f} ({interval}; {of})"


def estimate_line(estimate: Estimate, n_ctx: int) -> str:
    counted = f"{estimate.n_tokens} tokens in {counted_as(estimate.n_chunks, 'chunk')} of {n_ctx}"
    return f"{estimate.perplexity:.4f} +/- {estimate.error:.5f} ({counted})"


def divergence_lines(divergence: Divergence) -> list[str]:
    """Return readable lines; percentiles are those of single tokens."""
    of = divergence.percentiles
    percentiles = f"median {of[50]:.6f}, 90 % {of[90]:.6f}, 99 % {of[99]:.6f}, largest {of[100]:.6f}"
    ours = divergence.perplexity
    return [
        f"perplexity      {ours.perplexity:.4f} +/- {ours.error:.5f}, base {divergence.base:.4f}",
        f"KL divergence   {divergence.divergence:.6f} +/- {divergence.error:.6f}, {percentiles}",
        f"same top token  {100 * divergence.same_top:.3f} %",
        f"probability     differs by {100 * divergence.probability_rms:.3f} % (RMS)",
    ]
