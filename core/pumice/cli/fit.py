"""``pumice fit``: the plan of a model, before anything is loaded."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.confined import ConfinedCommand, settings_of
from pumice.cli.options import json_option, load_options, model_argument
from pumice.cli.output import echo
from pumice.cli.vocabulary import option
from pumice.wording import format_bytes

if TYPE_CHECKING:
    from pumice.hub.headers import RemoteModels
    from pumice.planning import ModelPlan, Quantization

_REMOTE = "pumice.remote_models"  # the repository and the function that reads its files


class FitCommand(ConfinedCommand):
    """A confined command that reads the headers of a repository's models instead of downloading one."""

    def models(self, ctx: click.Context) -> list[str]:
        return [] if _REMOTE in ctx.meta else super().models(ctx)

    def invoke(self, ctx: click.Context) -> Any:
        remote = _remote_models(ctx)
        if remote is None:
            return super().invoke(ctx)
        from pumice.hub.headers import read_range

        if ctx.obj is not True or not hasattr(os, "fork"):
            ctx.meta[_REMOTE] = remote, functools.partial(read_range, remote)
            return super().invoke(ctx)
        from pumice.cli.ranges import range_reader

        with range_reader(remote) as read:
            ctx.meta[_REMOTE] = remote, read
            return super().invoke(ctx)


def _remote_models(ctx: click.Context) -> RemoteModels | None:
    """Return the repository that MODEL names; None for a model on this machine."""
    from pumice.config import load_config
    from pumice.hub.headers import find_remote

    return find_remote(ctx.params["model"], load_config(settings_of(ctx.params)), always=True)


@click.command("fit", cls=FitCommand)
@model_argument
@option(
    "--memory",
    metavar="SIZES",
    help="Plan for another machine, whose GPUs have this memory: 12GiB, or 24GiB,24GiB for two; 0: no GPU.",
)
@option("--ram", metavar="SIZE", help="Plan for a machine with this host memory, such as 32GiB.")
@json_option
@load_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: str,
    memory: str | None,
    ram: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Show where a model would be placed.

    Shows bytes on each device and the largest context, and loads nothing. A name such as
    hf.co/owner/repository also lists which quantizations would fit; only headers are read. Options of the context, the
    cache and the placement apply. The default model is the demo model. The exit status is 1 if the model does not fit.
    """
    import pumice

    if _REMOTE not in ctx.meta:
        plan, others = pumice.plan(model, memory=memory, ram=ram, **options), []
    else:
        others = _plan_repository(ctx, memory, ram)
        plan = others[0].plan
    if as_json:
        more = {"quantizations": [item.to_dict() for item in others]} if others else {}
        echo(json.dumps(plan.to_dict() | more, indent=2))
    else:
        echo("\n".join([format_plan(plan), *(["", *_quantizations(others)] if others else [])]))
    if not plan.fits:
        raise click.exceptions.Exit(1)


def _plan_repository(ctx: click.Context, memory: str | None, ram: str | None) -> list[Quantization]:
    from pumice.config import load_config
    from pumice.planning import PlannedMachine, plan_repository
    from pumice.registry import get_registry

    remote, read = ctx.meta[_REMOTE]
    config = load_config(settings_of(ctx.params), remote.options)
    machine = PlannedMachine.of(memory, ram)
    return list(plan_repository(remote, read, config, get_registry(config), machine))


def format_plan(plan: ModelPlan) -> str:
    """Return the plan as readable lines."""
    facts = {
        "model": f"{plan.architecture}, {format_bytes(plan.n_bytes)}",
        "context": f"{plan.n_ctx} tokens{_shared(plan)}; {_most(plan)}, {plan.n_ctx_train} in training",
        "cache": f"{plan.kv_type}, {plan.n_parallel} sequences",
        "placement": placement_of(plan),
    }
    lines = [f"{name:<11} {value}" for name, value in facts.items()]
    return "\n".join([*lines, "", *device_table(plan)])


def placement_of(plan: ModelPlan) -> str:
    """Return in a few words on which devices a model is."""
    if not plan.fits:
        return f"does not fit: {_lacking(plan)}; lower -c, use -ctk q8_0, or choose a smaller quantization"
    if not plan.n_gpu_layers:
        return "no GPU layers"
    gpus = ", ".join(device.name for device in plan.devices if device.is_gpu)
    return f"{plan.n_gpu_layers} of {plan.n_layers} layers on {gpus}{_left_on_host(plan)}"


def _lacking(plan: ModelPlan) -> str:
    """Return the devices whose memory is too small, with free and needed bytes, as text."""
    short = [(device, device.free) for device in plan.devices if device.free is not None and device.bytes > device.free]
    texts = [
        f"{item.name} has {format_bytes(free)} free and would need {format_bytes(item.bytes)}" for item, free in short
    ]
    return ", ".join(texts)


def _left_on_host(plan: ModelPlan) -> str:
    """Return which weights of layers on GPUs stay in host memory."""
    gpus = {device.device for device in plan.devices if device.is_gpu}
    layers = {layer for device in plan.devices if device.is_gpu for layer in device.layers}
    texts = []
    for part, name in (("experts", "experts"), ("ffn", "feed-forward matrices")):
        held = [item for item in plan.held if item.part == part and item.layer in layers]
        left = {item.layer for item in held if item.device not in gpus} - {i.layer for i in held if i.device in gpus}
        texts += [f", {name} of {len(left)} in host memory"] if left else []
    return "".join(texts)


def _shared(plan: ModelPlan) -> str:
    """Return the size of a cache that holds more than one context."""
    return f", a cache of {plan.n_cache}" if plan.n_cache > plan.n_ctx else ""


def _most(plan: ModelPlan) -> str:
    return f"at most {plan.n_ctx_max} fit" if plan.n_ctx_max else "none fits"


def device_table(plan: ModelPlan) -> Iterable[str]:
    """Return a line for each device, with its bytes by part."""
    devices = plan.devices
    parts = sorted({part for device in devices for part in device.parts})
    rows = [["device", *(part.replace("_", " ") for part in parts), "total", "free"]]
    for device in devices:
        sizes = [format_bytes(device.parts[part]) if part in device.parts else "-" for part in parts]
        free = "-" if device.free is None else format_bytes(device.free)
        rows.append([device.name, *sizes, format_bytes(device.bytes), free])
    return _aligned(rows)


def _quantizations(items: Sequence[Quantization]) -> Iterable[str]:
    """Return a line for each quantization, smallest first."""
    rows = [["quantization", "size", "GPU layers", "context", "fits"]]
    for item in sorted(items, key=lambda item: item.plan.n_bytes):
        plan = item.plan
        layers = f"{plan.n_gpu_layers} of {plan.n_layers}"
        fits = "yes" if plan.fits else "no"
        rows.append([item.label, format_bytes(plan.n_bytes), layers, str(plan.n_ctx_max), fits])
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        yield "  ".join([f"{row[0]:<{widths[0]}}", *cells])
