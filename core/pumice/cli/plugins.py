"""``pumice plugins``: every plugin, what it registered, and why it did not load."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pumice.cli.options import json_option

if TYPE_CHECKING:
    from pumice.registry import PluginInfo


@click.command("plugins")
@json_option
def command(as_json: bool) -> None:
    """List every plugin and what it registered.

    With its distribution, version and hooks, the error that kept it from loading, and what of it cannot be used: this
    imports all that is registered.
    """
    from pumice.config import load_config
    from pumice.registry import load_registry

    registry = load_registry(load_config())
    problems = registry.problems()
    if as_json:
        plugins = [{**dataclasses.asdict(info), "problems": problems.get(info.name, [])} for info in registry.plugins]
        click.echo(json.dumps(plugins, indent=2))
    else:
        click.echo("\n".join(format_plugin(info, problems.get(info.name, [])) for info in registry.plugins))


def format_plugin(info: PluginInfo, problems: Sequence[str]) -> str:
    """A plugin as a few lines: where it is from, then its state or what it registered, and what of that fails."""
    title = f"{info.name} ({info.distribution} {info.version or ''})".replace(" )", ")")
    if info.disabled:
        details = ["disabled in the configuration"]
    elif info.error:
        details = [f"not loaded: {info.error}"]
    else:
        details = [f"hooks: {', '.join(info.hooks) or 'none'}"]
        details += [f"{kind}: {', '.join(names) or 'none'}" for kind, names in info.registered.items()]
        details += [f"problem: {problem}" for problem in problems]
    return "\n  ".join([title, *details])
