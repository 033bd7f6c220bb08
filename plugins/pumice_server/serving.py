"""The process: a socket, an event loop with uvicorn, and an end that lets requests finish."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Sequence

import click
import uvicorn

import pumice
from pumice_server.application import make_application
from pumice_server.service import Service
from pumice_server.settings import Settings

_BACKLOG = 512  # connections that wait to be taken
_MAX_CONNECTIONS = 1000  # connections and requests at once; beyond, the answer is 503


def listen(settings: Settings) -> socket.socket:
    """The socket, before anything slow begins. Raises ClickException where the address cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise click.ClickException(f"cannot listen on {where}: {error.strerror}; --port names another port") from None


def serve(model: pumice.Model, names: Sequence[str], settings: Settings, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM; then no request is taken, and those that run may end."""
    service = Service(model, names, settings.timeout, settings.max_sequences)
    config = uvicorn.Config(
        make_application(service, settings),
        http="h11",  # it bounds headers
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=int(settings.drain),
        limit_concurrency=_MAX_CONNECTIONS,
        ssl_keyfile=settings.tls_key,
        ssl_certfile=settings.tls_certificate,
    )
    try:
        config.load()
    except OSError as error:  # of ssl, which says neither the file nor what is wrong with it
        raise click.ClickException(f"TLS: {settings.tls_key}, {settings.tls_certificate}: {error}") from None
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a client that leaves is an error of its connection alone
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # uvicorn has its own, and raises the signal again at its end
    logging.getLogger("uvicorn.error").parent = logging.getLogger("pumice")
    click.echo(_summary(model, service, settings, listening), err=True)
    uvicorn.Server(config).run(sockets=[listening])


def _summary(model: pumice.Model, service: Service, settings: Settings, listening: socket.socket) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "https" if settings.tls_key else "http"
    keys = f"{len(settings.keys)} API keys" if settings.keys else "no API key"
    return (
        f"serving {', '.join(service.names)} on {', '.join(model.backends)}, n_ctx {model.n_ctx}, {keys}\n"
        f"listening on {scheme}://{host}:{listening.getsockname()[1]}"
    )
