"""``pumice convert``: a Hugging Face model's folder as a GGUF file."""

from __future__ import annotations

from pathlib import Path

import click

from pumice.cli.options import force_option, show_progress


@click.command("convert", context_settings={"max_content_width": 120})
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), help="The file, or a folder for it.")
@click.option("--type", default="auto", show_default=True, metavar="TYPE", help="auto (what FOLDER has), F32, F16, BF16"
              " or what pumice quantize takes.")  # fmt: skip
@click.option("--base", type=click.Path(path_type=Path), help="Of an adapter: the folder of the model that it changes.")
@click.option("--dry-run", is_flag=True, help="Say what the file would hold, and write nothing.")
@force_option
def command(folder: Path, out: Path | None, type: str, base: Path | None, dry_run: bool, force: bool) -> None:
    """Write a Hugging Face model as a GGUF file.

    FOLDER has config.json, model*.safetensors and a tokenizer; or it is a LoRA adapter that the package peft has saved.
    Everything is checked before the file is written.
    """
    from pumice.convert.adapter import is_adapter

    if is_adapter(folder):
        convert_adapter(folder, out, base, dry_run, force)
    else:
        convert_model(folder, out, type.upper(), dry_run, force)


def convert_model(folder: Path, out: Path | None, wanted: str, dry_run: bool, force: bool) -> None:
    """Write a model's file."""
    from pumice.convert import FILE_TYPES, default_name, write_model
    from pumice.opening import check_model, open_model
    from pumice.quantize import quantize

    kinds = {kind.name: kind for kind in FILE_TYPES}
    with open_model(folder, type=kinds.get(wanted)) as file:
        stored = {number: kind.name for kind, number in FILE_TYPES.items()}[file.metadata["general.file_type"]]
        name = default_name(file, stored if wanted == "AUTO" else wanted)
        target = (out or folder) / name if out is None or out.is_dir() else out
        check_model(file)
        if dry_run:
            click.echo(f"{target}: {len(file.tensors)} tensors, {file.n_bytes:,} bytes as {stored}")
            return
        with show_progress("converting") as progress:
            if wanted in ("AUTO", *kinds):
                write_model(file, target, force=force, progress=progress)
            else:
                quantize(folder, target, wanted, force=force, progress=progress)
    click.echo(target)


def convert_adapter(folder: Path, out: Path | None, base: Path | None, dry_run: bool, force: bool) -> None:
    """Write an adapter's file."""
    from pumice.convert import write_model
    from pumice.opening import open_adapter

    with open_adapter(folder, base=base) as file:
        name = f"{folder.resolve().name}-F32-LoRA.gguf"
        target = (out or folder) / name if out is None or out.is_dir() else out
        if not dry_run:
            write_model(file, target, force=force)
        click.echo(f"{target}: {len(file.tensors)} tensors, {file.n_bytes:,} bytes" if dry_run else target)
