"""The ``pumice`` command. Each subcommand is a module here; what it needs is imported when it runs."""

import importlib
import os
import signal
import sys

import click

COMMANDS = ["run", "info", "plugins", "devices", "tokenize", "bench", "gguf"]
INTERRUPTED = 130  # the status a shell gives a program that Ctrl-C ended


class Commands(click.Group):
    """Finds a subcommand in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return COMMANDS

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"pumice.cli.{name}").command
        return command


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
