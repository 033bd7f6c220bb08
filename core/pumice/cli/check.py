"""``pumice check``: find out whether a model's file is broken."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.files import InputFile, ModelPath
from pumice.cli.named_models import locate_model
from pumice.cli.options import json_option, load_options, model_argument, read_text
from pumice.cli.output import echo
from pumice.cli.progress import show_progress
from pumice.cli.vocabulary import option
from pumice.wording import counted_as

if TYPE_CHECKING:
    from pumice.check import Finding

MARKS = {"error": "ERROR", "warning": "WARNING", "note": "note"}


@click.command("check", cls=ConfinedCommand)
@model_argument
@option(
    "--base",
    type=ModelPath(path_type=Path),
    metavar="FILE",
    group="Check",
    help="The model before it was quantized: find the tensors and layers that lose most.",
)
@option(
    "-f",
    "--file",
    type=InputFile(path_type=Path),
    metavar="FILE",
    help="A text that the model should predict well.  [default: English prose]",
)
@option("--no-run", is_flag=True, help="Check the file only: metadata, vocabulary, template, weights.")
@option(
    "--tool-calls",
    "n_calls",
    type=click.IntRange(1, 20),
    default=1,
    help="Number of questions for a tool, with calls required and free.",
)
@json_option
@load_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: str,
    base: Path | None,
    file: Path | None,
    no_run: bool,
    n_calls: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Check whether a model's file is broken.

    Checks metadata, vocabulary, chat template and weights. Then runs the model: the prediction of a built-in text
    beside what the model's size suggests, the same with other positions to find out what is wrong, an answer that ends,
    and tool calls. The exit status is 1 if there are errors or warnings.
    """
    from pumice.check import Plan, check
    from pumice.check.text import TEXT
    from pumice.config import load_config
    from pumice.registry import get_registry

    path = locate_model(model)
    plan = Plan(read_text("text", file) if file else TEXT, base, not no_run, n_calls)
    with show_progress("checking", unit="") as progress:
        registry = get_registry(load_config(options["config"] or {}))
        findings = list(check(path, registry, options, plan, progress))
    if as_json:
        echo(json.dumps({"model": model, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        echo("\n".join(lines(findings)))
    ctx.exit(1 if any(finding.level != "note" for finding in findings) else 0)


def lines(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each finding, the gravest first, and a summary."""
    order = list(MARKS)
    listed = sorted(findings, key=lambda finding: order.index(finding.level))
    counts = [counted_as(n, level) for level in order[:2] if (n := sum(item.level == level for item in findings))]
    summary = " and ".join(counts) if counts else "no problems found"
    return [*(f"{MARKS[item.level]:<8} {item.subject}: {item.message}" for item in listed), summary]
