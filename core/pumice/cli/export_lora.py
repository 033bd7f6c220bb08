"""``pumice export-lora``: merge LoRA adapters into a model."""

from __future__ import annotations

from pathlib import Path

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.files import InputFile, ModelName, OutputFile
from pumice.cli.named_models import locate_model
from pumice.cli.options import force_option, no_sandbox_option, separated, split_scale
from pumice.cli.output import echo
from pumice.cli.progress import show_progress
from pumice.cli.vocabulary import option


@click.command("export-lora", cls=ConfinedCommand)
@click.argument("model", type=ModelName())
@click.argument("out", type=OutputFile(path_type=Path))
@option(
    "--lora",
    "adapters",
    multiple=True,
    type=InputFile(lambda text: separated([text])),
    metavar="FILE",
    group="Adapters",
    help="LoRA adapter. Repeatable, or with commas.",
)
@option(
    "--lora-scaled",
    "scaled",
    multiple=True,
    metavar="FILE:SCALE",
    group="Adapters",
    type=InputFile(lambda text: [split_scale(item)[0] for item in separated([text])]),
    help="LoRA adapter with a scale factor. Repeatable, or with commas.",
)
@force_option
@no_sandbox_option
def command(model: str, out: Path, adapters: tuple[str, ...], scaled: tuple[str, ...], force: bool) -> None:
    """Merge LoRA adapters into a model.

    Writes MODEL with the adapters in its weights to OUT. Changed weights are written as F16, or as F32 if they are F32;
    the others keep their types. Quantize the file again to make it smaller.
    """
    from pumice.adapters import merge, read_adapter
    from pumice.convert import write_model
    from pumice.model_files.opening import open_adapter, open_model

    factors = [(path, 1.0) for path in separated(adapters)] + [split_scale(item) for item in separated(scaled)]
    if not factors:
        raise click.UsageError("give an adapter with --lora or --lora-scaled")
    with open_model(locate_model(model)) as base:
        read = []
        for path, scale in factors:
            with open_adapter(path, base=base.path) as file:
                read.append((read_adapter(file, base.architecture), scale))
        with merge(base, read) as merged, show_progress("merging") as progress:
            write_model(merged, out, force=force, progress=progress)
    echo(out)
