"""The ``pumice`` command. What a subcommand needs is imported when it runs."""

import os
import signal
import sys
from collections.abc import Mapping

import click

from pumice.commands import COMMANDS
from pumice.lazy import resolve
from pumice.suggest import unknown_name

INTERRUPTED = 130  # the status a shell gives a program that Ctrl-C ended


class Commands(click.Group):
    """Pumice's commands and those of plugins, each imported when it runs, or when help lists it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in _registered()[0] if _loads(self, ctx, name)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        commands, absent = _registered()
        if name in commands:
            return resolve(commands[name])
        if name.startswith("-") or ctx.resilient_parsing:
            return None
        raise click.UsageError(unknown_name("command", name, commands) + absent, ctx)


def _registered() -> tuple[Mapping[str, click.Command | str], str]:
    """Commands, or where to import them from, and which plugins did not load.

    Plugins are loaded only where some are installed that are not Pumice's own, so that help stays fast.
    """
    from importlib.metadata import entry_points

    if all(point.dist and point.dist.metadata["Name"] == "pumice" for point in entry_points(group="pumice")):
        return COMMANDS, ""
    from pumice.config import load_config
    from pumice.errors import ConfigError
    from pumice.registry import load_registry

    try:
        commands = load_registry(load_config()).commands
    except ConfigError:  # the command itself will say so
        return COMMANDS, ""
    return commands, commands.absent


def _loads(group: click.Group, ctx: click.Context, name: str) -> bool:
    """Whether a command can be listed. If a plugin's cannot be imported, `pumice plugins` says why."""
    from pumice.errors import PluginError

    try:
        return group.get_command(ctx, name) is not None
    except PluginError:
        return False


@click.command("pumice", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pumice", message="pumice %(version)s")
def cli() -> None:
    """Run GGUF language models on any GPU with a Vulkan driver and on any CPU."""


def main() -> None:
    """Entry point: every failure becomes one line on standard error, and an exit status."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `pumice run ... | head` ends as quietly as cat does
    try:
        status = cli.main(sys.argv[1:] or ["--help"], "pumice", standalone_mode=False)
    except click.Abort:
        status = INTERRUPTED
    except Exception as error:
        if os.environ.get("PUMICE_DEBUG") == "1":
            raise
        message, status = explain(error)
        click.echo(f"error: {' '.join(message.split())}", err=True)
    sys.exit(status)


def explain(error: Exception) -> tuple[str, int]:
    """What to tell the user about an error, and the exit status: 2 for wrong usage, else 1."""
    from pumice.errors import PumiceError

    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "pumice"
        return f"{error.format_message().rstrip('.')} (see `{command} --help`)", error.exit_code
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, PumiceError):
        return str(error), 1
    if isinstance(error, MemoryError):
        return "out of memory; try a smaller model, --n-ctx or --n-batch", 1
    return f"internal error: {type(error).__name__}: {error}; set PUMICE_DEBUG=1 for the traceback", 1
