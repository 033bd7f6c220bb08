"""The process: a socket, an event loop with uvicorn, and an end that lets requests finish."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from types import FrameType

import click
import uvicorn
from starlette.applications import Starlette

import pumice
from pumice.cli.confinement import Needs, confined_server
from pumice.cli.options import is_here
from pumice.cli.progress import show_progress
from pumice_server import limits
from pumice_server.application import make_application
from pumice_server.entry import Entry, Load, Spec
from pumice_server.keys import Keys
from pumice_server.models import Models
from pumice_server.protocol import Protocol
from pumice_server.settings import Settings

_BACKLOG = 512  # connections that wait to be taken
_LAST_SECONDS = 1.0  # of the time to drain, for streams to say that they end early

logger = logging.getLogger("pumice")

Failing = Callable[[Exception], None]
Progress = Callable[[int, int], None]


@contextlib.contextmanager
def listen(settings: Settings) -> Iterator[list[socket.socket]]:
    """Open a socket for each address, before anything slow begins; all have one port.

    Raises ClickException where an address cannot be had.
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
        reason = str(error.strerror).partition(" (while")[0]  # of trying the address, which stands before
        other = "port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "host"
        raise click.ClickException(f"cannot listen on {where}: {reason}; --{other} names another {other}") from None


def serve(
    specs: Sequence[Spec], settings: Settings, listening: Sequence[socket.socket], load: Load | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; then no request is taken, and those that run may end.

    ``load``: loads a model; None: in a process of its own.

    Raises what loading raises, where the only model cannot be loaded.
    """
    models = Models(specs, load or load_process, settings)
    application = make_application(models, lambda application: lifespan(models, addresses(settings, listening), failed))
    config = configure(application, settings)
    server = _Server(config, models)
    errors: list[Exception] = []

    def failed(error: Exception) -> None:
        errors.append(error)
        server.should_exit = True

    try:
        config.load()
    except OSError as error:  # of ssl, which says neither the file nor what is wrong with it
        raise click.ClickException(f"TLS: {settings.tls_key}, {settings.tls_certificate}: {error}") from None
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a client that leaves is an error of its connection alone
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # uvicorn has its own, and raises the signal again at its end
    logging.getLogger("uvicorn.error").parent = logging.getLogger("pumice")
    told_system()
    fetches = settings.allow_pull or not all(is_here(spec.path) for spec in specs)
    with contextlib.ExitStack() as stack:
        if load is None:
            paths = [spec.path for spec in specs]
            stack.enter_context(
                confined_server(Needs(paths, specs[0].options, settings.read, settings.written, fetches))
            )
        server.run(sockets=list(listening))
    if errors:
        raise errors[0]


def configure(application: Starlette, settings: Settings) -> uvicorn.Config:
    """How HTTP is spoken."""
    logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)
    return uvicorn.Config(
        application,
        http=partial(Protocol, idle={}),  # type: ignore[arg-type]  # whatever makes one
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=limits.IDLE_SECONDS,
        timeout_graceful_shutdown=int(settings.drain),
        limit_concurrency=limits.MAX_CONNECTIONS,
        h11_max_incomplete_event_size=limits.MAX_HEADERS,
        ssl_keyfile=settings.tls_key,
        ssl_certfile=settings.tls_certificate,
    )


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """False for the traceback of a request that uvicorn itself cancelled, since the time to stop was over."""
    return not (record.exc_info and record.exc_info[0] is asyncio.CancelledError)


@contextlib.asynccontextmanager
async def lifespan(models: Models, address: str, failed: Failing) -> AsyncIterator[None]:
    """What runs beside the requests: the only model is loaded, engines are watched, and all end with the server."""
    if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():  # others get no signals
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, models.settings)
    first = _begin(models, address, failed)
    tasks = [asyncio.create_task(models.watch()), asyncio.create_task(first)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await models.close()


def _reload(settings: Settings) -> None:
    """Read the keys again; the ones that were there stay, if that fails."""
    assert isinstance(settings.keys, Keys)
    try:
        settings.keys.reload()
        logger.warning("there are %d API keys now", len(settings.keys))
    except click.ClickException as error:
        logger.error("%s", error.message)


async def _begin(models: Models, address: str, failed: Failing) -> None:
    entry = models.single
    if entry:
        try:
            async with models.using(entry):
                click.echo(_summary(entry, models.settings), err=True)
        except Exception as error:
            if not models.draining:
                models.draining = True  # it is not tried again
                failed(error)
            return
    else:
        click.echo(f"serving {', '.join(each.name for each in models.entries)}", err=True)
    click.echo(f"listening on {address}", err=True)
    notify("READY=1")


def _summary(entry: Entry, settings: Settings) -> str:
    assert entry.service is not None
    model = entry.service.model
    keys = {0: "no API key", 1: "1 API key"}.get(len(settings.keys), f"{len(settings.keys)} API keys")
    size = sum(model.memory.values()) / 2**20
    where = f"on {', '.join(model.backends)}, n_ctx {model.n_ctx}, {size:.0f} MiB"
    return f"serving {', '.join(entry.spec.names)} {where}, {keys}"


def addresses(settings: Settings, listening: Sequence[socket.socket]) -> str:
    """Return where the server is reached, as people read it."""
    scheme = "https" if settings.tls_key else "http"
    names = [f"[{host}]" if ":" in host else host for host in settings.addresses]
    return ", ".join(f"{scheme}://{name}:{each.getsockname()[1]}" for name, each in zip(names, listening, strict=True))


def load_process(
    spec: Spec, progress: Callable[[int, int], None], deliver: Callable[..., object], command: str = "serve"
) -> pumice.ProcessModel:
    """Load a model; ``command`` is the subcommand that ``pumice ps`` shows for it."""
    with show_progress(f"loading {spec.names[0]}", unit="step") as shown:

        def tell(done: int, total: int) -> None:
            progress(done, total)
            shown(done, total)

        return pumice.load_process(spec.path, deliver=deliver, command=command, progress=tell, **spec.options)


def notify(state: str) -> None:
    """Tell systemd, where it started this process and wants to know."""
    if told := told_system():
        with contextlib.suppress(OSError):
            told.send(state.encode())


@functools.cache
def told_system() -> socket.socket | None:
    """The socket of systemd. A process that is confined later opens it before."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if where[:1] not in ("/", "@"):
        return None
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        told.connect(where.replace("@", "\0", 1))
    except OSError:
        told.close()
        return None
    return told


class _Server(uvicorn.Server):
    """Begins to stop by saying so: nothing new is taken, and what runs at the end of the time is told."""

    def __init__(self, config: uvicorn.Config, models: Models) -> None:
        super().__init__(config)
        self._models = models

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        notify("STOPPING=1")
        self._models.drain(max(0.0, self._models.settings.drain - _LAST_SECONDS))
        super().handle_exit(sig, frame)
