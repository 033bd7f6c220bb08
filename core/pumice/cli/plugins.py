"""``pumice plugins``: installed plugins, their registrations, and their errors; the package of a new one."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pumice.cli.options import json_option
from pumice.cli.output import echo
from pumice.cli.plugin_package import MODULES, package_files

if TYPE_CHECKING:
    from pumice.registry import PluginInfo


MOST_NAMES = 12  # maximum names per kind in the list of all plugins


class PluginCommands(click.Group):
    """A group in which names of plugins without a command are listed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        listed = [] if args and args[0] in (*self.commands, "-h", "--help") else ["list"]
        return super().parse_args(ctx, [*listed, *args])


@click.group("plugins", cls=PluginCommands)
def command() -> None:
    """List installed plugins, or write a new one."""


@command.command("list")
@click.argument("names", nargs=-1, metavar="[PLUGIN]...")
@json_option
def list_command(names: tuple[str, ...], as_json: bool) -> None:
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
        echo(json.dumps(plugins, indent=2))
    else:
        most = None if names else MOST_NAMES
        echo("\n".join(format_plugin(info, problems.get(info.name, []), most) for info in shown))


@command.command("new")
@click.argument("name")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([*MODULES]),
    help="What the plugin registers. Repeatable.  [default: sampler]",
)
def new_command(name: str, kinds: tuple[str, ...]) -> None:
    """Write the package of a new plugin to the folder NAME.

    The package is typed, works as it is, and is explained in "Write a plugin" of the documentation.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise click.UsageError(f"{name!r} is no name of a package; use lower-case letters, digits and dashes")
    if _is_taken(name):
        raise click.ClickException(f"{name}: Python or an installed package has this name; choose another one")
    folder = Path(name)
    if folder.exists():
        raise click.ClickException(f"{name} exists; choose another name")
    try:
        for path, text in package_files(name, [kind for kind in MODULES if kind in (kinds or ("sampler",))]).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise click.ClickException(f"{name} cannot be written: {(error.strerror or str(error)).lower()}") from None
    echo(f"wrote {name}; install it with `pip install -e {name}`, then `pumice plugins` lists it")


def _is_taken(name: str) -> bool:
    """Return True if a package of this name could not be imported, or would hide or replace another when installed."""
    import importlib.metadata
    import importlib.util
    from keyword import iskeyword

    from pumice.installed import installed_plugins

    module = name.replace("-", "_")
    distributions = importlib.metadata.distributions(name=name)
    plugins = [plugin.point.name for plugin in installed_plugins()]
    return iskeyword(module) or name in plugins or any(distributions) or importlib.util.find_spec(module) is not None


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
