"""The server process: sockets, uvicorn's event loop, and a shutdown that lets requests finish."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any

import click
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool

import pumice
from pumice.cli.progress import show_progress
from pumice.mcp import HostedTools, hosted_tools
from pumice.plugin.unstable import ModelSpec
from pumice.process_list import RunningServer, listed_server
from pumice.switching import frequent_switches, without_collections
from pumice_server import limits
from pumice_server.application import make_application, prepare_bodies, run_tools
from pumice_server.command.beginning import COMMAND
from pumice_server.http.connections import MALFORMED, Protocol, RequestTurns
from pumice_server.jobs.runner import Jobs
from pumice_server.keys import APIKeys
from pumice_server.logs import announce
from pumice_server.models.served_model import Load, ServedModel
from pumice_server.models.served_models import Models
from pumice_server.settings import Settings

_LAST_SECONDS = 1.0  # end of the drain time, in which streams send their error
_CANCELLED = "asyncio.exceptions.CancelledError"  # last line of the traceback of a cancelled task

logger = logging.getLogger("pumice")

Failing = Callable[[Exception], None]


def serve(
    specs: Sequence[ModelSpec],
    settings: Settings,
    listening: Sequence[socket.socket],
    options: Mapping[str, Any],
    load: Load | None = None,
    confine: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGINT or SIGTERM; then refuse new requests and let running ones finish.

    Args:
        specs: Models to serve.
        settings: Settings of the server.
        listening: Open sockets.
        options: Arguments of ``pumice.load`` for models that clients fetch.
        load: Function that loads a model (default: in a process of its own).
        confine: Function that confines this process, called before the first thread starts.

    Raises the errors of loading if the only model cannot be loaded.
    """
    expect_files(limits.MAX_CONNECTIONS)
    models = Models(specs, load or load_process, settings, options)
    application = make_application(
        models,
        lambda application: lifespan(
            models, addresses(settings, listening), failed, application.state.jobs, application.state.tools
        ),
    )
    config = configure(application, settings)
    server = _Server(config, models)
    errors: list[Exception] = []

    def failed(error: Exception) -> None:
        errors.append(error)
        server.should_exit = True

    try:
        config.load()
    except OSError as error:  # ssl names neither the file nor the problem
        files = f"{settings.tls_key} and {settings.tls_certificate}"
        raise click.ClickException(
            f"--ssl-key-file, --ssl-cert-file: {files} are not a key and its certificates in PEM: {error}"
        ) from None
    stop_by_signals(server)
    logging.getLogger("uvicorn.error").parent = logging.getLogger("pumice")
    logging.getLogger("pumice").addFilter(partial(_name_model, models))
    system_socket()
    with contextlib.ExitStack() as stack:
        stack.enter_context(frequent_switches())  # threads read tokens while the event loop begins requests
        models_by_path = {spec.path: spec.names[0] for spec in specs}
        stack.enter_context(listed_server(RunningServer(own_address(settings, listening), models_by_path)))
        if settings.mcp_servers:
            run_tools(application, stack.enter_context(hosted_tools(settings.mcp_servers)))
        confine()
        server.run(sockets=list(listening))
    if errors:
        raise errors[0]


def _name_model(models: Models, record: logging.LogRecord) -> bool:
    """End a message of an engine with its model's name, if there are several models."""
    path = getattr(record, "model", None)
    if path is not None and len(models.served_models) > 1:
        name = next((served.name for served in models.served_models if served.spec.path == path), path)
        record.msg, record.args = "%s (model %s)", (record.getMessage(), name)
    return True


def stop_by_signals(server: uvicorn.Server) -> None:
    """Stop a server by signals before its event loop runs, and ignore those that uvicorn raises again at its end."""

    def stop(sig: int, frame: FrameType | None) -> None:
        server.should_exit = True

    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a client that disconnects only ends its connection
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def expect_files(n_files: int) -> None:
    """Let the system make room for ``n_files`` open files, before threads share their table.

    Linux doubles a process's table of files when it is full, at 64 and 256 of them, and then waits for all processors
    if threads share it: the first 64 connections of a server waited 30 to 50 ms.
    """
    if sys.platform != "linux":
        return
    import fcntl
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = n_files if limit == resource.RLIM_INFINITY else min(n_files, limit - 1)
    with contextlib.suppress(OSError), open(os.devnull, "rb") as file:
        os.close(fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, most))


def configure(application: Starlette, settings: Settings) -> uvicorn.Config:
    """Return the configuration of uvicorn."""
    logging.getLogger("uvicorn.error").addFilter(_is_wanted)
    return uvicorn.Config(
        application,
        http=partial(Protocol, idle={}, turns=RequestTurns()),  # type: ignore[arg-type]  # any factory of protocols
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


def _is_wanted(record: logging.LogRecord) -> bool:
    """Return False for the traceback of a request that uvicorn cancelled at the end of the drain time.

    Also for that of the lifespan, which a second signal cancels (Starlette passes it on as a text), and for the warning
    of a malformed request, of which ``Protocol`` writes one with the client's address.
    """
    cancelled = record.exc_info and record.exc_info[0] is asyncio.CancelledError
    return not (cancelled or record.msg == MALFORMED or str(record.msg).rstrip().endswith(_CANCELLED))


@contextlib.asynccontextmanager
async def lifespan(
    models: Models, address: str, failed: Failing, jobs: Jobs | None = None, tools: HostedTools | None = None
) -> AsyncIterator[None]:
    """Load the only model, watch the engines, answer waiting batches, and end all of it with the server."""
    if (
        hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread()
    ):  # other threads get no signals
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, models.settings)
    first = _begin(models, address, failed)
    tasks = [asyncio.create_task(models.watch()), asyncio.create_task(first)]
    tasks.append(asyncio.create_task(run_in_threadpool(prepare_bodies)))  # also loads what Starlette needs for streams
    if tools:
        tools.start()
    if jobs:
        models.ends.append(jobs.end)
        jobs.start()
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        if jobs:
            await jobs.stop()
        await models.close()


def _reload(settings: Settings) -> None:
    """Read the API keys again, or keep the present ones if that fails."""
    assert isinstance(settings.keys, APIKeys)
    if settings.keys.file is None:
        logger.warning("SIGHUP: there is no --api-key-file to read again")
        return
    try:
        settings.keys.reload()
        logger.warning("reloaded the API keys: %d", len(settings.keys))
    except click.ClickException as error:
        logger.error("%s", error.message)


async def _begin(models: Models, address: str, failed: Failing) -> None:
    served_model = models.single
    if served_model:
        try:
            # outside of the main thread, the process may be another program's, which decides that itself
            is_own = threading.current_thread() is threading.main_thread()
            with without_collections() if is_own else contextlib.nullcontext():
                async with models.using(served_model):
                    announce(_summary(served_model, models.settings))
        except Exception as error:
            if not models.draining:
                models.draining = True  # no retry
                failed(error)
            return
    else:
        announce(f"serving {', '.join(served.name for served in models.served_models)}")
    announce(f"listening on {address}")
    notify("READY=1")


def _summary(served_model: ServedModel, settings: Settings) -> str:
    assert served_model.service is not None
    model = served_model.service.model
    keys = {0: "no API key", 1: "1 API key"}.get(len(settings.keys), f"{len(settings.keys)} API keys")
    names, backends = ", ".join(served_model.spec.names), ", ".join(model.backends)
    return f"serving {names} on {backends}, {_sizes(model)}, {keys}"


def _sizes(model: pumice.Model) -> str:
    """Return the context, the cache that sequences share, and the memory of a model, as people read them."""
    facts = model.facts
    context, size = f"n_ctx {facts.n_ctx}", sum(facts.memory.values()) / 2**20
    if facts.n_ctx < facts.n_ctx_train:
        context += f" of {facts.n_ctx_train} in training"
    if facts.n_cache > facts.n_ctx:
        context += f", a cache of {facts.n_cache} tokens"
    cache = facts.memory.get("kv_cache", 0) / 2**20
    return f"{context}, {size:.0f} MiB" + (f" (cache {cache:.0f})" if cache else "")


def own_address(settings: Settings, listening: Sequence[socket.socket]) -> str:
    """Return the URL by which a program on this machine reaches the server: the first address, or loopback."""
    host = settings.addresses[0]
    return _url(settings, {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), listening[0])


def addresses(settings: Settings, listening: Sequence[socket.socket]) -> str:
    """Return where the server is reached, as people read it."""
    return ", ".join(map(partial(_url, settings), settings.addresses, listening))


def _url(settings: Settings, host: str, open_socket: socket.socket) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.tls_key else 'http'}://{name}:{open_socket.getsockname()[1]}"


def load_process(
    spec: ModelSpec, progress: Callable[[int, int], None], deliver: Callable[..., object], command: str = COMMAND
) -> pumice.Model:
    """Load a model in a process; ``command`` is the subcommand that ``pumice ps`` shows for it."""
    with show_progress(f"loading {spec.names[0]}", unit="step") as shown:

        def tell(done: int, total: int) -> None:
            progress(done, total)
            shown(done, total)

        return pumice.load_process(spec.path, deliver=deliver, command=command, progress=tell, **spec.options)


def notify(state: str) -> None:
    """Send a state to systemd, if it started this process with a socket."""
    if connection := system_socket():
        with contextlib.suppress(OSError):
            connection.send(state.encode())


@functools.cache
def system_socket() -> socket.socket | None:
    """Return systemd's socket, opened before the process is confined, or None."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if where[:1] not in ("/", "@"):
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        connection.connect(where.replace("@", "\0", 1))
    except OSError:
        connection.close()
        return None
    return connection


class _Server(uvicorn.Server):
    """A uvicorn server that drains the models when it is told to stop."""

    def __init__(self, config: uvicorn.Config, models: Models) -> None:
        super().__init__(config)
        self._models = models

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit  # a second signal; uvicorn takes only SIGINT for one
        notify("STOPPING=1")
        self._models.drain(max(0.0, self._models.settings.drain - _LAST_SECONDS))
        super().handle_exit(sig, frame)
