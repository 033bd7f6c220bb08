"""``pumice convert``: convert the folder of a Hugging Face model to a GGUF file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.files import InputFile, OutputFile, WrittenFiles
from pumice.cli.gguf.parts import max_size_option, max_tensors_option
from pumice.cli.options import force_option, no_sandbox_option
from pumice.cli.output import echo
from pumice.cli.progress import show_progress
from pumice.cli.vocabulary import option
from pumice.wording import counted_as

if TYPE_CHECKING:
    from pumice.convert.output import Parts
    from pumice.gguf import GGMLType
    from pumice.quantizer import Quantizer


class ConvertedFile(OutputFile):
    """The file to write, or a folder for it: the name of an adapter's file is known, that of a model's is read."""

    def outputs(self, value: Any, ctx: click.Context) -> Iterator[WrittenFiles]:
        from pumice.convert.adapter import is_adapter

        folder, path = ctx.params["folder"], Path(value)
        if not path.is_dir():
            yield from super().outputs(path, ctx)
        elif is_adapter(folder):
            yield from super().outputs(path / _adapter_name(folder), ctx)
        else:
            yield WrittenFiles(path.resolve(), re.compile(r"[^.].*\.gguf"))  # whose name is read: it replaces no file


class ConvertedFolder(InputFile, ConvertedFile):
    """An input folder, also the folder of the output unless ``--output`` names another."""

    def outputs(self, value: Any, ctx: click.Context) -> Iterator[WrittenFiles]:
        if ctx.params["out"] is None:
            yield from super().outputs(value, ctx)


@click.command("convert", cls=ConfinedCommand, context_settings={"max_content_width": 120})
@click.argument("folder", type=ConvertedFolder(path_type=Path))
@option(
    "-o",
    "--output",
    "out",
    aliases=("--outfile",),
    type=ConvertedFile(path_type=Path),
    metavar="FILE",
    group="Output",
    help="File to write, or a folder for it, in which no model is replaced.  [default: in FOLDER]",
)
@option(
    "--outtype",
    "type",
    aliases=("--type",),
    default="auto",
    metavar="TYPE",
    group="Output",
    help="Type of the tensors: auto (the type in FOLDER, F16 for F32), F32, F16, BF16, or a type of pumice quantize.",
)
@option(
    "--base",
    type=InputFile(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    group="Model",
    help="Folder of the base model (adapters only).",
)
@option(
    "--target",
    type=InputFile(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    group="Model",
    help="Folder of the model that a draft model drafts for (EAGLE-3 and DFlash only).",
)
@option("--model-name", metavar="NAME", group="Model", help="Name in the metadata.  [default: the name in FOLDER]")
@option(
    "--metadata",
    type=InputFile(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    group="Model",
    help="JSON file of metadata keys, such as general.author, which replace those of FOLDER.",
)
@option(
    "--vocab-only", is_flag=True, group="Output", help="Write the tokenizer and the hyperparameters, without tensors."
)
@option(
    "--mmproj",
    is_flag=True,
    group="Model",
    help="Write the projector of images or sound instead of the language model.",
)
@max_size_option
@max_tensors_option
@option("--dry-run", is_flag=True, group="Output", help="Show what the file would hold; write nothing.")
@force_option
@no_sandbox_option
def command(folder: Path, **options: Any) -> None:
    """Write a Hugging Face model as a GGUF file.

    FOLDER holds config.json, model*.safetensors and a tokenizer, or a LoRA adapter saved by the package peft.
    Everything is checked before the file is written.
    """
    from pumice.convert.adapter import is_adapter

    if folder.is_file():
        with folder.open("rb") as file:
            kind = "a GGUF file already" if file.read(4) == b"GGUF" else "a file"
        raise click.UsageError(f"FOLDER: {folder} is {kind}; expected the folder of a Hugging Face model")
    if options["max_size"] and options["max_tensors"]:
        raise click.UsageError("give either --split-max-size or --split-max-tensors")
    if is_adapter(folder):
        _check_adapter_options(options)
        convert_adapter(folder, options)
    elif options["base"]:
        raise click.UsageError(f"--base is for LoRA adapters; {folder} has no adapter_config.json")
    else:
        convert_model(folder, options)


def _check_adapter_options(arguments: dict[str, Any]) -> None:
    """Raise UsageError for an option that only models have."""
    names = {"max_size": "--split-max-size", "max_tensors": "--split-max-tensors"}
    for key in ("model_name", "metadata", "vocab_only", "target", "mmproj", *names):
        if arguments[key]:
            raise click.UsageError(f"{names.get(key, '--' + key.replace('_', '-'))} is for models, not LoRA adapters")
    if arguments["type"].upper() not in ("AUTO", "F32"):
        raise click.UsageError(f"--outtype: a LoRA adapter is written as F32, not {arguments['type']}")


def convert_model(folder: Path, arguments: dict[str, Any]) -> None:
    """Convert the folder of a model. ``arguments`` are the options of the command."""
    from pumice.convert import FILE_TYPES, ConvertOptions, default_name, write_model
    from pumice.gguf.split import part_path
    from pumice.model_files.opening import check_model, check_projector, open_model
    from pumice.quantize import COPY, file_type, quantize

    kinds, type = {kind.name: kind for kind in FILE_TYPES}, arguments["type"].upper()
    if type not in ("AUTO", COPY, *kinds):
        file_type(type)  # raises QuantizeError before anything is read
    options = ConvertOptions(
        kinds.get(type),
        arguments["model_name"],
        arguments["metadata"],
        arguments["vocab_only"],
        arguments["target"],
        _quantizer(kinds.get(type)),
        arguments["mmproj"],
    )
    with open_model(folder, options=options) as file:
        (check_projector(file) if options.mmproj else check_model(file, target=arguments["target"]))
        stored = next((t.type.name for t in file.tensors.values() if t.type is not kinds["F32"]), "F32")
        name = default_name(file, stored if type == "AUTO" else type)
        name = Path(f"mmproj-{name}") if options.mmproj else name
        target = _target(folder, arguments["out"], name)
        if arguments["dry_run"]:
            echo(f"{target}: {counted_as(len(file.tensors), 'tensor')}, {file.n_bytes:,} bytes as {stored}")
            return
        how: dict[str, Any] = {"parts": _parts(arguments), "force": _may_replace(target, arguments)}
        with show_progress("converting") as progress:
            if type in ("AUTO", *kinds) or options.vocab_only:
                paths = write_model(file, target, progress=progress, **how)
            else:
                n_parts = len(quantize(file, target, type, progress=progress, **how).parts or ())
                paths = [part_path(target, i, n_parts) for i in range(n_parts)] or [target]
    echo("\n".join(map(str, paths)))


def _quantizer(kind: GGMLType | None) -> Quantizer | None:
    """Return the quantizer of a type; None for a type without one."""
    from pumice.config import load_config
    from pumice.registry import get_registry

    quantizers = get_registry(load_config()).quantizers
    return quantizers[kind.name] if kind and kind.name in quantizers else None


def _target(folder: Path, out: Path | None, name: Path) -> Path:
    return (out or folder) / name if out is None or out.is_dir() else out


def _may_replace(target: Path, arguments: dict[str, Any]) -> bool:
    """Return whether ``target`` may be replaced: with ``--force``, and only if the command line names it.

    Otherwise FOLDER, which is not trusted, would choose the file. Raises UsageError.
    """
    if target == arguments["out"] or not arguments["force"]:
        return bool(arguments["force"])
    parts = target.parent.glob(f"{escape(target.stem)}-*-of-*.gguf")
    if existing := [path for path in (target, *parts) if path.exists()]:
        raise click.UsageError(f"{existing[0]} exists already; --force replaces a file that is named: -o {target}")
    return False


def _adapter_name(folder: Path) -> Path:
    return Path(f"{folder.resolve().name}-F32-LoRA.gguf")


def _parts(arguments: dict[str, Any]) -> Parts | None:
    """Return the function that divides tensors among files; None for one file."""
    from pumice.gguf.copy import parts_by_number, parts_by_size

    if arguments["max_size"]:
        return partial(parts_by_size, most=arguments["max_size"])
    return partial(parts_by_number, most=arguments["max_tensors"]) if arguments["max_tensors"] else None


def convert_adapter(folder: Path, arguments: dict[str, Any]) -> None:
    """Convert the folder of a LoRA adapter. ``arguments`` are the options of the command."""
    from pumice.convert import write_model
    from pumice.model_files.opening import open_adapter

    with open_adapter(folder, base=arguments["base"]) as file:
        target = _target(folder, arguments["out"], _adapter_name(folder))
        if not arguments["dry_run"]:
            write_model(file, target, force=arguments["force"])
        size = f": {counted_as(len(file.tensors), 'tensor')}, {file.n_bytes:,} bytes" if arguments["dry_run"] else ""
        echo(f"{target}{size}")
