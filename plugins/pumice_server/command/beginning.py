"""The first steps of a server, before its modules are imported: sockets, the spawner, and the only model's engine."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from pumice.cli.ahead import discard_engine
from pumice.cli.confinement import Needs, server_spawner, start_engine
from pumice.cli.named_models import is_here
from pumice_server.settings import Settings

if TYPE_CHECKING:
    from pumice.plugin.unstable import ModelSpec

COMMAND = "serve"  # what `pumice ps` shows for engines of servers
_BACKLOG = 512  # connections waiting to be accepted


@contextlib.contextmanager
def listen(settings: Settings) -> Iterator[list[socket.socket]]:
    """Open a socket for each address, all with one port, before anything slow begins.

    Raises ClickException if an address is not available.
    """
    with contextlib.ExitStack() as stack:
        sockets: list[socket.socket] = []
        for host in settings.addresses:
            port = sockets[0].getsockname()[1] if sockets else settings.port
            sockets.append(stack.enter_context(_listen(host, port)))
        yield sockets


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        where = f"{host}:{port}"
        reason = str(error.strerror).partition(" (while")[0]  # the address is in the message already
        other = "port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "host"
        raise click.ClickException(f"cannot listen on {where}: {reason}; --{other} names another {other}") from None


@contextlib.contextmanager
def begun(specs: Sequence[ModelSpec], settings: Settings) -> Iterator[Callable[[], None]]:
    """Fork the spawner and start the engine of the only model, which loads while the server's modules are imported.

    Yields the function that confines this process, which must be called before another thread starts.
    """
    with server_spawner(_needs(specs, settings)) as confine:
        if len(specs) == 1:
            start_engine(specs[0].path, specs[0].options, COMMAND)
        discard_engine()
        yield confine


def _needs(specs: Sequence[ModelSpec], settings: Settings) -> Needs:
    """Return what the confined server may read, write and reach."""
    own = [spec.options for spec in specs]
    return Needs(
        [spec.path for spec in specs],
        own[0],
        settings.read,
        settings.written,
        uploads=str(settings.uploads) if settings.uploads else None,
        fetches=settings.allow_pull or not all(is_here(spec.path) for spec in specs),
        own=own,
        connects=bool(settings.media_hosts),
    )
