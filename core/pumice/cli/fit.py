"""``pumice fit``: the plan of a model, before anything is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.options import json_option, load_options, model_argument
from pumice.cli.vocabulary import option
from pumice.wording import format_bytes

if TYPE_CHECKING:
    from pumice.planning import DevicePlan, Plan


@click.command("fit", cls=ConfinedCommand)
@model_argument
@option(
    "--memory",
    metavar="SIZES",
    help="Plan for another machine, whose GPUs have this memory: 12GiB, or 24GiB,24GiB for two; 0: no GPU.",
)
@option("--ram", metavar="SIZE", help="Plan for a machine with this host memory, such as 32GiB.")
@option("--no-measure", is_flag=True, help="Leave out the predicted rates, which need a measurement once a machine.")
@json_option
@load_options
def command(
    model: str,
    memory: str | None,
    ram: str | None,
    no_measure: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Show where a model would live, and how fast it would be.

    Shows bytes on each device, the largest context and predicted rates, and loads nothing. Options of the context, the
    cache and the placement apply. The default model is the demo model. The exit status is 1 if the model does not fit.
    """
    import pumice

    plan = pumice.plan(model, memory=memory, ram=ram, measure=not no_measure, **options)
    click.echo(json.dumps(plan.to_dict(), indent=2) if as_json else format_plan(plan))
    if not plan.fits:
        raise click.exceptions.Exit(1)


def format_plan(plan: Plan) -> str:
    """Return the plan as readable lines."""
    on_gpu = (
        f"{plan.n_gpu_layers} of {plan.n_layers} layers on {_names(plan)}" if plan.n_gpu_layers else "no GPU layers"
    )
    facts = {
        "model": f"{plan.architecture}, {format_bytes(plan.n_bytes)}",
        "context": f"{plan.n_ctx} tokens; at most {plan.n_ctx_max} fit, {plan.n_ctx_train} in training",
        "cache": f"{plan.kv_type}, {plan.n_parallel} sequences",
        "placement": on_gpu if plan.fits else "does not fit: a smaller -c, -ctk q8_0 or a smaller quantization may",
        "prompt": _rate(plan.prompt_per_second),
        "generation": _generation(plan),
    }
    lines = [f"{name:<11} {value}" for name, value in facts.items()]
    return "\n".join([*lines, "", *_table(plan.devices)])


def _names(plan: Plan) -> str:
    return ", ".join(device.name for device in plan.devices if device.is_gpu)


def _generation(plan: Plan) -> str:
    full = plan.generation_per_second_full
    return _rate(plan.generation_per_second) + (f", {full:,.1f} with a full context" if full else "")


def _rate(per_second: float | None) -> str:
    return "-" if per_second is None else f"{per_second:,.1f} tokens/s (predicted)"


def _table(devices: Sequence[DevicePlan]) -> list[str]:
    """Return a line for each device, with its bytes by part."""
    parts = sorted({part for device in devices for part in device.parts})
    rows = [["device", *(part.replace("_", " ") for part in parts), "total", "free"]]
    for device in devices:
        sizes = [format_bytes(device.parts[part]) if part in device.parts else "-" for part in parts]
        free = "-" if device.free is None else format_bytes(device.free)
        rows.append([device.name, *sizes, format_bytes(device.bytes), free])
    return list(_aligned(rows))


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        yield "  ".join([f"{row[0]:<{widths[0]}}", *cells])
