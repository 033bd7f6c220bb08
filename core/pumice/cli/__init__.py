"""The ``pumice`` command. Subcommands and their imports are loaded when they run."""

import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.messages import report, require_streams, show_logs
from pumice.commands import BUNDLED_COMMANDS, COMMANDS, DESTRUCTIVE, GROUPS, OTHER_NAMES
from pumice.guard import Terminated, raise_named
from pumice.lazy import resolve
from pumice.wording import unknown_name

if TYPE_CHECKING:
    from pumice.registry import Names


class Commands(click.Group):
    """Pumice's commands and those of plugins, each imported when it runs, or when help lists it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in _registered()[0] if _loads(self, ctx, name)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under the headings of ``GROUPS``, and those of plugins under their own."""
        listed = dict.fromkeys(self.list_commands(ctx))
        groups = {title: [name for name in names if name in listed] for title, names in GROUPS.items()}
        grouped = {name for names in groups.values() for name in names}
        groups["Plugins"] = [name for name in listed if name not in grouped]
        width = formatter.width - 6 - max(map(len, listed))
        for title, names in groups.items():
            commands = {name: command for name in names if (command := self.get_command(ctx, name))}
            if commands:
                with formatter.section(title):
                    formatter.write_dl([(name, row.get_short_help_str(width)) for name, row in commands.items()])

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        commands, absent = _registered()
        if name in _ALIASES:
            return _option_as_command(_ALIASES[name])
        if name in commands:
            return resolve(commands[name])
        if name.startswith("-") or ctx.resilient_parsing:
            return None
        if name in OTHER_NAMES:
            raise click.UsageError(f"there is no command {name!r}: {OTHER_NAMES[name]}", ctx)
        raise click.UsageError(unknown_name("command", name, commands, DESTRUCTIVE) + absent, ctx)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if error.ctx is None and ctx.invoked_subcommand:  # an option without its value
                error.ctx = click.Context(self, parent=ctx, info_name=ctx.invoked_subcommand)
            raise
        except (click.ClickException, click.Abort, click.exceptions.Exit, OSError):
            raise
        except Exception as error:
            name = ctx.invoked_subcommand
            if name is None or name in COMMANDS:
                raise
            raise_named(error, _registered_by_plugins().describe(name))


_ALIASES = {"help": "--help", "version": "--version"}  # options that people try as commands


def _option_as_command(option: str) -> click.Command:
    @click.command(hidden=True)
    @click.argument("command", required=False)
    def command(command: str | None) -> None:
        cli.main([*([command] if command else []), option], "pumice", standalone_mode=False)

    return command


def _registered() -> tuple[Mapping[str, click.Command | str], str]:
    """Return the commands, or the names to import them from, and a note if those of plugins are not known.

    Plugins are loaded only if some are installed that are not Pumice's own, so that help stays fast.
    """
    from pumice.installed import PACKAGE, installed_plugins

    if all(plugin.distribution == PACKAGE for plugin in installed_plugins()):
        return COMMANDS | BUNDLED_COMMANDS, ""
    from pumice.errors import ConfigError

    show_logs()
    try:
        commands = _registered_by_plugins()
    except ConfigError as error:  # commands of Pumice report it themselves
        return COMMANDS | BUNDLED_COMMANDS, f"; those of plugins are not known: {error}"
    return commands, ""  # unknown_name tells of plugins that did not load


def _registered_by_plugins() -> "Names[click.Command]":
    from pumice.config import load_config
    from pumice.registry import load_registry

    return load_registry(load_config()).commands


def _loads(group: click.Group, ctx: click.Context, name: str) -> bool:
    """Return True if a command can be imported, and so listed. `pumice plugins` reports the reason if not."""
    from pumice.errors import PluginError

    try:
        return group.get_command(ctx, name) is not None
    except PluginError:
        return False


@click.command("pumice", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "-V", "--version", package_name="pumice", message="pumice %(version)s")
def cli() -> None:
    """Run GGUF language models on any GPU with a Vulkan driver and on any CPU."""
    show_logs()


def _end(number: int, frame: object) -> None:
    """End the process with the status of a signal; half-written files are removed."""
    raise Terminated(128 + number)


def main(confines: bool = False) -> None:
    """Run the command line. Every failure becomes one line on standard error, and an exit status.

    Args:
        confines: True if the process belongs to the command, which may confine it.
    """
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `pumice run ... | head` ends silently, like cat
    signal.signal(signal.SIGTERM, _end)
    try:
        require_streams()
        status = cli.main(sys.argv[1:] or ["--help"], "pumice", standalone_mode=False, obj=confines)
    except (Exception, KeyboardInterrupt) as error:
        status = report(error)
    sys.exit(status)
