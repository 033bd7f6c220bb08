"""Read llama-server's environment variables, for options that the command line does not set.

An empty variable counts as unset where the option has a value, but for files of keys and the like.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import click

from pumice.cli.output import echo

PREFIX = "LLAMA_ARG_"
_OPTIONS = {
    "BATCH": "--batch-size",
    "CHECKPOINT_MIN_SPACING_NT": "--checkpoint-min-step",
    "ENDPOINT_METRICS": "--metrics",
    "ENDPOINT_PROPS": "--props",
    "ENDPOINT_SLOTS": "--slots",
    "N_PARALLEL": "--parallel",
    "ROPE_SCALING_TYPE": "--rope-scaling",
    "SPEC_DRAFT_CACHE_TYPE_K": "--spec-draft-type-k",
    "SPEC_DRAFT_CACHE_TYPE_V": "--spec-draft-type-v",
    "SPEC_DRAFT_HF_REPO": "--spec-draft-hf",
    "STATIC_PATH": "--path",
    "THINK": "--reasoning-format",
    "THINK_BUDGET": "--reasoning-budget",
    "THINK_BUDGET_MESSAGE": "--reasoning-budget-message",
    "UBATCH": "--ubatch-size",
}
"""Variables, without their prefix, whose names differ from their options'."""

_TRUE, _FALSE = ("1", "true", "on", "enabled"), ("0", "false", "off", "disabled")


def option_of(variable: str) -> str:
    """``LLAMA_ARG_CTX_SIZE`` is ``--ctx-size``."""
    name = variable.removeprefix(PREFIX)
    return _OPTIONS.get(name, "--" + name.lower().replace("_", "-"))


def arguments_of(
    environment: Mapping[str, str],
    given: Sequence[str],
    params: Sequence[click.Parameter],
    ignored: Mapping[str, int],
    refused: Collection[str],
) -> list[str]:
    """Return arguments for the environment variables, to stand before the given ones.

    Args:
        environment: Environment variables.
        given: Arguments of the command line.
        params: Parameters of the command.
        ignored: Options without a meaning here, and the number of values of each.
        refused: Options that are refused.

    Raises:
        UsageError: A flag is neither on nor off.
    """
    options = {name: param for param in params for name in (*param.opts, *param.secondary_opts)}
    takes = {name: int(not getattr(param, "is_flag", False)) for name, param in options.items()} | dict(ignored)
    names = {argument.partition("=")[0] for argument in given}
    arguments: list[str] = []
    for variable, value in sorted(environment.items()):
        name, off = option_of(variable), value.lower() in _FALSE
        if not variable.startswith(PREFIX) or (name in options and names & {*options[name].opts}):
            continue
        is_security = getattr(options.get(name), "group", "") == "Security"
        if not value and takes.get(name) and not is_security:  # a Compose file passes unset variables so
            continue
        if name in refused:
            arguments += [] if off else [name]
        elif name not in takes:
            echo(f"warning: {variable} has no meaning for pumice serve, and is ignored", err=True)
        else:
            arguments += argument_of(name, value, takes, refused, variable)
    return arguments


def argument_of(name: str, value: str, takes: Mapping[str, int], refused: Collection[str], source: str) -> list[str]:
    """Return the arguments of an option that is given elsewhere than on the command line.

    Args:
        name: Name of the option.
        value: Its value; of a flag on or off.
        takes: Number of values of each option.
        refused: Options that are refused.
        source: Where the option is given, for errors.

    Raises:
        UsageError: A flag is neither on nor off.
    """
    if takes[name]:
        return [f"{name}={value}"] if name.startswith("--") else [name, value]
    if value.lower() in _TRUE:
        return [name]
    if value.lower() not in _FALSE:
        raise click.UsageError(f"{source}: expected on or off, not {value!r:.60}")
    opposite = f"--no-{name.lstrip('-')}"
    return [opposite] if opposite in (*takes, *refused) else []


def predict_route(environment: Mapping[str, str]) -> str | None:
    """Return the path of Vertex AI's predictions; None where this is not one of its containers."""
    return environment.get("AIP_PREDICT_ROUTE", "/predict") if environment.get("AIP_MODE") == "PREDICTION" else None
