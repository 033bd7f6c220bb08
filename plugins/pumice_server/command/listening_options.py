"""Options and limits of commands that listen: ``serve`` and ``route``."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from pumice.cli.vocabulary import Decorator, option

_LEAST_FILES = 64  # that the process may have open

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


def check_open_files() -> None:
    """Raise ClickException if this process may open too few files; the event loop would end it by SIGABRT."""
    with contextlib.suppress(ImportError):  # of systems without such a limit
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if most != resource.RLIM_INFINITY and most < _LEAST_FILES:
            raise click.ClickException(
                f"only {most} files may be open, a server needs {_LEAST_FILES}: raise the limit by `ulimit -n 1024`"
            )
