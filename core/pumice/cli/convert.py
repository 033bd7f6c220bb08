"""``pumice convert``: a Hugging Face model's folder as a GGUF file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.gguf.parts import parse_size
from pumice.cli.options import force_option
from pumice.cli.progress import show_progress

if TYPE_CHECKING:
    from pumice.convert.output import Parts
    from pumice.gguf import GGMLType
    from pumice.quantizer import Quantizer


@click.command("convert", context_settings={"max_content_width": 120})
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(path_type=Path),
    help="The file, or a folder for it.  [default: into FOLDER]",
)
@click.option("--type", default="auto", show_default=True, metavar="TYPE", help="auto (what FOLDER has, F16 for F32),"
              " F32, F16, BF16 or what pumice quantize takes.")  # fmt: skip
@click.option(
    "--base",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Of an adapter: the folder of the model that it changes.",
)
@click.option(
    "--target",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Of a draft (EAGLE-3, DFlash): the folder of the model that it drafts for.",
)
@click.option("--model-name", metavar="NAME", help="The model's name, instead of what FOLDER says.")
@click.option("--metadata", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
              help="JSON of keys such as general.author, which go before FOLDER's.")  # fmt: skip
@click.option("--vocab-only", is_flag=True, help="Write the tokenizer and the hyperparameters, without tensors.")
@click.option("--split-max-size", "max_size", callback=parse_size, metavar="SIZE",
              help="Write parts, of at most so many bytes each, as 500M or 4G.")  # fmt: skip
@click.option("--split-max-tensors", "max_tensors", type=click.IntRange(min=1), help="The same, of so many tensors.")
@click.option("--dry-run", is_flag=True, help="Say what the file would hold, and write nothing.")
@force_option
def command(folder: Path, **options: Any) -> None:
    """Write a Hugging Face model as a GGUF file.

    FOLDER has config.json, model*.safetensors and a tokenizer; or it is a LoRA adapter that the package peft has saved.
    Everything is checked before the file is written.
    """
    from pumice.convert.adapter import is_adapter

    if folder.is_file():
        what = "a GGUF file already" if folder.suffix == ".gguf" else "a file"
        raise click.UsageError(f"FOLDER: {folder} is {what}; convert takes the folder of a Hugging Face model")
    if options["max_size"] and options["max_tensors"]:
        raise click.UsageError("give either --split-max-size or --split-max-tensors")
    if is_adapter(folder):
        convert_adapter(folder, options)
    else:
        convert_model(folder, options)


def convert_model(folder: Path, given: dict[str, Any]) -> None:
    """Write a model's file."""
    from pumice.convert import FILE_TYPES, Options, default_name, write_model
    from pumice.gguf.split import part_path
    from pumice.opening import check_model, open_model
    from pumice.quantize import quantize

    kinds, wanted = {kind.name: kind for kind in FILE_TYPES}, given["type"].upper()
    options = Options(
        kinds.get(wanted),
        given["model_name"],
        given["metadata"],
        given["vocab_only"],
        given["target"],
        _quantizer(kinds.get(wanted)),
    )
    with open_model(folder, options=options) as file:
        check_model(file, target=given["target"])
        stored = next((t.type.name for t in file.tensors.values() if t.type is not kinds["F32"]), "F32")
        target = _target(folder, given["out"], default_name(file, stored if wanted == "AUTO" else wanted))
        if given["dry_run"]:
            click.echo(f"{target}: {len(file.tensors)} tensors, {file.n_bytes:,} bytes as {stored}")
            return
        how: dict[str, Any] = {"parts": _parts(given), "force": given["force"]}
        with show_progress("converting") as progress:
            if wanted in ("AUTO", *kinds) or options.vocab_only:
                paths = write_model(file, target, progress=progress, **how)
            else:
                n_parts = len(quantize(file, target, wanted, progress=progress, **how).parts or ())
                paths = [part_path(target, i, n_parts) for i in range(n_parts)] or [target]
    click.echo("\n".join(map(str, paths)))


def _quantizer(kind: GGMLType | None) -> Quantizer | None:
    """What makes the blocks of a type; None for one without."""
    from pumice.config import load_config
    from pumice.registry import get_registry

    quantizers = get_registry(load_config()).quantizers
    return quantizers[kind.name] if kind and kind.name in quantizers else None


def _target(folder: Path, out: Path | None, name: Path) -> Path:
    return (out or folder) / name if out is None or out.is_dir() else out


def _parts(given: dict[str, Any]) -> Parts | None:
    """How tensors are divided among files; None: one file."""
    from pumice.gguf.copy import parts_by_number, parts_by_size

    if given["max_size"]:
        return partial(parts_by_size, most=given["max_size"])
    return partial(parts_by_number, most=given["max_tensors"]) if given["max_tensors"] else None


def convert_adapter(folder: Path, given: dict[str, Any]) -> None:
    """Write an adapter's file."""
    from pumice.convert import write_model
    from pumice.opening import open_adapter

    with open_adapter(folder, base=given["base"]) as file:
        target = _target(folder, given["out"], Path(f"{folder.resolve().name}-F32-LoRA.gguf"))
        if not given["dry_run"]:
            write_model(file, target, force=given["force"])
        click.echo(f"{target}: {len(file.tensors)} tensors, {file.n_bytes:,} bytes" if given["dry_run"] else target)
