"""``pumice plugins``: every plugin, what it registered, and why it did not load."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click

from pumice.cli.options import json_option

if TYPE_CHECKING:
    from pumice.registry import PluginInfo


@click.command("plugins")
@json_option
def command(as_json: bool) -> None:
    """List every plugin and what it registered.

    With its distribution, version and hooks, or the error that kept it from loading.
    """
    from pumice.config import load_config
    from pumice.errors import PluginError
    from pumice.registry import load_registry

    registry = load_registry(load_config())
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(info) for info in registry.plugins], indent=2))
    else:
        click.echo("\n".join(format_plugin(info) for info in registry.plugins))
    if registry.conflicts:
        raise PluginError(registry.conflicts[0])


def format_plugin(info: PluginInfo) -> str:
    """A plugin as a few lines: where it is from, then its state or what it registered."""
    title = f"{info.name} ({info.distribution} {info.version or ''})".replace(" )", ")")
    if info.disabled:
        details = ["disabled in the configuration"]
    elif info.error:
        details = [f"not loaded: {info.error}"]
    else:
        details = [f"hooks: {', '.join(info.hooks) or 'none'}"]
        details += [f"{kind}: {', '.join(names) or 'none'}" for kind, names in info.registered.items()]
    return "\n  ".join([title, *details])
