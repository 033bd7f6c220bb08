"""``pumice quantize``: write a model in smaller tensor types."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.files import InputFile, ModelPath, OutputFile
from pumice.cli.options import force_option, no_sandbox_option, read_text
from pumice.cli.output import echo
from pumice.cli.progress import show_progress
from pumice.cli.vocabulary import option
from pumice.wording import counted_as

if TYPE_CHECKING:
    from pumice.gguf import EncodedValue, GGMLType
    from pumice.quantize import ImportanceMatrix, QuantizationPlan

# As llama-quantize has them; an integer is stored as u32.
OVERRIDE_TYPES = {"int": "u32", "float": "f32", "bool": "bool", "str": "str"}


@click.command("quantize", cls=ConfinedCommand, context_settings={"max_content_width": 120})
@click.argument("source", type=ModelPath(), metavar="IN")
@click.argument("out", type=OutputFile(), metavar="OUT")
@click.argument("type", metavar="TYPE")
@option("--imatrix", type=InputFile(), metavar="FILE", help="Importance matrix, GGUF or .dat.")
@option(
    "--include-weights",
    multiple=True,
    metavar="TEXT",
    help="Use only entries of the matrix whose names contain TEXT. Repeatable.",
)
@option(
    "--exclude-weights",
    multiple=True,
    metavar="TEXT",
    help="Use no entries of the matrix whose names contain TEXT. Repeatable.",
)
@option("--pure", is_flag=True, help="Quantize all tensors to one type, without the rules of the mix.")
@option(
    "--tensor-type",
    "tensor_types",
    multiple=True,
    metavar="NAME=TYPE",
    help="Type of tensors whose names match the regular expression NAME; the first match applies. Repeatable.",
)
@option(
    "--tensor-type-file",
    type=InputFile(path_type=Path),
    metavar="FILE",
    help="Read NAME=TYPE pairs from FILE, separated by spaces or lines.",
)
@option("--output-tensor-type", metavar="TYPE", help="Type of output.weight.")
@option("--token-embedding-type", metavar="TYPE", help="Type of the token embeddings.")
@option("--leave-output-tensor", is_flag=True, help="Keep the type of output.weight.")
@option("--allow-requantize", is_flag=True, help="Quantize tensors that are quantized already; costs quality.")
@option("--keep-split", is_flag=True, group="Output", help="Write as many files as the source has.")
@option("--prune-layers", metavar="N,N...", help="Layers to leave out.")
@option(
    "--override-kv",
    multiple=True,
    metavar="KEY=TYPE:VALUE",
    help="Set metadata of type int, float, bool or str. Repeatable.",
)
@option("--dry-run", is_flag=True, group="Output", help="Show the type of each tensor; write nothing.")
@option(
    "-t",
    "--threads",
    type=click.IntRange(-1),
    group="Backend",
    help="Number of threads; 0 or -1: one for each core.  [default: 0]",
)
@force_option
@no_sandbox_option
def command(source: str, out: str, type: str, dry_run: bool, threads: int | None, force: bool, **rest: Any) -> None:
    """Write the model IN to OUT in a smaller TYPE.

    TYPE is a type or a mix of types, as llama-quantize names them:

    \b
    F32 F16 BF16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S Q4_1 Q4_0
    IQ4_NL IQ4_XS MXFP4_MOE Q3_K_L Q3_K_M Q3_K_S IQ3_M IQ3_S IQ3_XS
    IQ3_XXS* Q2_K Q2_K_S* IQ2_M* IQ2_S* IQ2_XS* IQ2_XXS* Q2_0 TQ2_0 TQ1_0
    IQ1_M* IQ1_S* Q1_0; COPY for a copy

    Types with * need an importance matrix. docs/making_models.md compares their quality.
    """
    from pumice.model_files.opening import open_model
    from pumice.quantize import plan_quantization, quantize

    imatrix = _imatrix(rest["imatrix"], rest["include_weights"], rest["exclude_weights"])
    options = _options(rest)
    if dry_run:
        with open_model(source) as file:
            plan = plan_quantization(file, type, imatrix=imatrix, options=options)
        echo("\n".join([*lines(plan), *coverage(plan, imatrix)]))
        return
    threads = max(threads or 0, 0)
    with show_progress("quantizing") as progress:
        plan = quantize(
            source, out, type, imatrix=imatrix, options=options, threads=threads, force=force, progress=progress
        )
    echo("\n".join([summary(plan), *coverage(plan, imatrix)]), err=True)


def lines(plan: QuantizationPlan) -> list[str]:
    """Return a line for each tensor, and the summary."""
    from pumice.gguf.compare import describe_tensor

    width = max(len(decision.info.name) for decision in plan.decisions)
    described = []
    for decision in plan.decisions:
        new = "" if decision.is_copy else f" -> {decision.info.type.name}"
        instead = f" (rows do not fit {decision.replaced.name})" if decision.replaced else ""
        lacking = " (needs an importance matrix)" if decision.needs_weights and decision.weights is None else ""
        described.append(f"{decision.info.name:<{width}}  {describe_tensor(decision.source)}{new}{instead}{lacking}")
    return [*described, summary(plan)]


def summary(plan: QuantizationPlan) -> str:
    """Return the total size before and after quantization, in one line."""
    n_replaced = sum(decision.replaced is not None for decision in plan.decisions)
    others = f"; {counted_as(n_replaced, 'tensor')} in other types, since rows do not fit" if n_replaced else ""
    return f"{plan.source_bytes:,} bytes to {plan.n_bytes:,}, {plan.bits_per_weight:.2f} bits per weight{others}"


def coverage(plan: QuantizationPlan, imatrix: ImportanceMatrix | None) -> list[str]:
    """Return a line that names quantized tensors without weights in the importance matrix; empty if there are none."""
    missing = plan.unweighted if imatrix is not None else []
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    return [f"without weights in the importance matrix: {', '.join(missing[:3])}{more}"] if missing else []


def _imatrix(path: str | None, include: tuple[str, ...], exclude: tuple[str, ...]) -> ImportanceMatrix | None:
    from pumice.quantize import read_imatrix

    if include and exclude:
        raise click.UsageError("give either --include-weights or --exclude-weights")
    if path is None:
        if include or exclude:
            raise click.UsageError("--include-weights and --exclude-weights need --imatrix")
        return None
    matrix = read_imatrix(path)
    if exclude:
        matrix = matrix.only(lambda name: not any(text in name for text in exclude))
    return matrix.only(lambda name: any(text in name for text in include)) if include else matrix


def _options(rest: dict[str, Any]) -> Any:
    from pumice.quantize import QuantizeOptions, tensor_type

    return QuantizeOptions(
        pure=rest["pure"],
        leave_output=rest["leave_output_tensor"],
        output_type=tensor_type(rest["output_tensor_type"]) if rest["output_tensor_type"] else None,
        embedding_type=tensor_type(rest["token_embedding_type"]) if rest["token_embedding_type"] else None,
        tensor_types=_tensor_types(rest["tensor_types"], rest["tensor_type_file"]),
        allow_requantize=rest["allow_requantize"],
        keep_split=rest["keep_split"],
        prune_layers=_layers(rest["prune_layers"]),
        overrides=dict(map(_override, rest["override_kv"])),
    )


def _tensor_types(arguments: tuple[str, ...], file: Path | None) -> list[tuple[str, GGMLType]]:
    from pumice.quantize import tensor_type

    items = list(arguments)
    if file is not None:
        items += read_text("the types of tensors", file).split()
    pairs = []
    for item in items:
        name, equals, type = item.partition("=")
        if not name or not equals:
            raise click.UsageError(f"expected NAME=TYPE, not {item!r}")
        pairs.append((name.lower(), tensor_type(type)))
    return pairs


def _layers(text: str | None) -> list[int]:
    if text is None:
        return []
    numbers = text.split(",")
    if not all(number.isdecimal() for number in numbers):
        raise click.UsageError(f"--prune-layers: expected numbers separated by commas, not {text!r}")
    return sorted({int(number) for number in numbers})


def _override(item: str) -> tuple[str, EncodedValue]:
    from pumice.gguf.values import parse_value

    key, equals, typed = item.partition("=")
    name, colon, text = typed.partition(":")
    if not key or not equals or not colon or name not in OVERRIDE_TYPES:
        raise click.UsageError(f"expected KEY=TYPE:VALUE with a type of {', '.join(OVERRIDE_TYPES)}, not {item!r}")
    return key, parse_value(text, OVERRIDE_TYPES[name])
