"""``pumice gguf``: show, compare and change GGUF files. Subcommands are imported when they run."""

import importlib

import click

from pumice.wording import unknown_name

MODULES = {
    "show": "show",
    "set": "edit",
    "rename": "edit",
    "split": "parts",
    "merge": "parts",
    "diff": "compare",
    "hash": "compare",
}


class GGUFCommands(click.Group):
    """Finds a subcommand under the name ``<name>_command`` in its module."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])  # as `pumice` alone

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in MODULES:
            if name.startswith("-") or ctx.resilient_parsing:
                return None
            raise click.UsageError(unknown_name("command", name, MODULES), ctx)
        command: click.Command = getattr(importlib.import_module(f"pumice.cli.gguf.{MODULES[name]}"), f"{name}_command")
        return command


@click.command("gguf", cls=GGUFCommands)
def command() -> None:
    """Show, compare and change GGUF files."""
