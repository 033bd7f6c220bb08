"""``pumice plugins``: installed plugins, their registrations, and their errors."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from pumice.cli.options import json_option

if TYPE_CHECKING:
    from pumice.registry import PluginInfo


MOST_NAMES = 12  # maximum names per kind in the list of all plugins


@click.command("plugins")
@click.argument("names", nargs=-1, metavar="[PLUGIN]...")
@json_option
def command(names: tuple[str, ...], as_json: bool) -> None:
    """List installed plugins and their registrations.

    Shows distribution, version and hooks of each plugin, the error if it did not load, and registered objects that
    cannot be imported. With PLUGIN, shows only these plugins, with all names.
    """
    from pumice.config import load_config
    from pumice.registry import load_registry
    from pumice.wording import unknown_name

    registry = load_registry(load_config())
    installed = [info.name for info in registry.plugins]
    for name in names:
        if name not in installed:
            raise click.ClickException(unknown_name("plugin", name, installed))
    shown = [info for info in registry.plugins if not names or info.name in names]
    problems = registry.problems()
    if as_json:
        plugins = [{**dataclasses.asdict(info), "problems": problems.get(info.name, [])} for info in shown]
        click.echo(json.dumps(plugins, indent=2))
    else:
        most = None if names else MOST_NAMES
        click.echo("\n".join(format_plugin(info, problems.get(info.name, []), most) for info in shown))


def format_plugin(info: PluginInfo, problems: Sequence[str], most_names: int | None = None) -> str:
    """Return the lines of a plugin: its distribution, then its state or its registrations, and their problems."""
    title = f"{info.name} ({info.distribution} {info.version or ''})".replace(" )", ")")
    if info.disabled:
        details = ["disabled in the configuration"]
    elif info.error:
        details = [f"not loaded: {info.error}"]
    else:
        details = [f"hooks: {', '.join(info.hooks) or 'none'}"]
        details += [f"{kind}: {format_names(info, names, most_names)}" for kind, names in info.registered.items()]
        details += [f"problem: {problem}" for problem in problems]
    return "\n  ".join([title, *details])


def format_names(info: PluginInfo, names: Sequence[str], most: int | None) -> str:
    """Return the first ``most`` names (None: all), and the number of omitted ones."""
    if most is None or len(names) <= most:
        return ", ".join(names) or "none"
    return f"{', '.join(names[:most])}, and {len(names) - most} more: pumice plugins {info.name}"
