"""Options of commands that listen: ``serve`` and ``route``."""

from __future__ import annotations

from pathlib import Path

import click

from pumice.cli.vocabulary import Decorator, option

port_option = option(
    "--port",
    default=8080,
    show_default=True,
    type=click.IntRange(0, 65535),
    metavar="N",
    group="Server",
    help="Port to listen on; 0: any free port.",
)


def key_file_option(use: str = "") -> Decorator:
    """Return the option of a file of API keys; ``use``: what else becomes of the keys, for help."""
    return option(
        "--api-key-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        group="Security",
        help=f"Read API keys from FILE, one per line.{use}",
    )
