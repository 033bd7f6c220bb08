"""``pumice export-lora``: a model with adapters in its weights."""

from __future__ import annotations

from pathlib import Path

import click

from pumice.cli.options import force_option, locate_model, split_scale
from pumice.cli.progress import show_progress


@click.command("export-lora")
@click.argument("model")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--lora", "adapters", multiple=True, metavar="FILE", help="An adapter, as strong as it was trained.")
@click.option("--lora-scaled", "scaled", multiple=True, metavar="FILE:SCALE", help="One that is stronger or weaker.")
@force_option
def command(model: str, out: Path, adapters: tuple[str, ...], scaled: tuple[str, ...], force: bool) -> None:
    """Write MODEL with LoRA adapters in its weights to OUT.

    Weights that change are written as F16, or F32 where they are F32; the others stay as they are. Quantize the file
    again to make it small.
    """
    from pumice.adapters import merge, read_adapter
    from pumice.convert import write_model
    from pumice.opening import open_adapter, open_model

    wanted = [(path, 1.0) for path in adapters] + [split_scale(each) for each in scaled]
    if not wanted:
        raise click.UsageError("give an adapter with --lora or --lora-scaled")
    with open_model(locate_model(model)) as base:
        if out.exists() and out.samefile(base.path):
            raise click.UsageError(f"{out} is the model itself, which would be lost: give another name")
        read = []
        for path, scale in wanted:
            with open_adapter(path, base=base.path) as file:
                read.append((read_adapter(file, base.architecture), scale))
        with merge(base, read) as merged, show_progress("merging") as progress:
            write_model(merged, out, force=force, progress=progress)
    click.echo(out)
