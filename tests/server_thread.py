"""A server in a thread of the tests' process."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx2
import uvicorn
from starlette.applications import Starlette

import pumice
from pumice.plugin.unstable import ModelSpec
from pumice_server.application import make_application
from pumice_server.command.serving import configure, lifespan, load_process
from pumice_server.models.served_models import Models
from pumice_server.settings import Settings
from waiting import PATIENCE


class Running(NamedTuple):
    url: str
    model: pumice.Model
    client: httpx2.Client
    application: Starlette


class Serving(NamedTuple):
    url: str
    models: Models
    client: httpx2.Client


@contextmanager
def running(model: pumice.Model, **settings: Any) -> Iterator[Running]:
    """A server of its own for ``model``, which is in this process."""
    application = make_application(Models.of(model, ["demo", "other-name"], Settings(**settings)))
    with listening(application) as (url, client):
        yield Running(url, model, client, application)


@contextmanager
def serving(*specs: ModelSpec, **settings: Any) -> Iterator[Serving]:
    """A server of models that have processes of their own."""
    models = Models(specs, load_process, Settings(**settings), specs[0].options)
    application = make_application(models, lambda _: lifespan(models, "", print))
    with listening(application) as (url, client):
        yield Serving(url, models, client)


@contextmanager
def listening(application: Starlette) -> Iterator[tuple[str, httpx2.Client]]:
    """The address of an application, and a client of it."""
    config = configure(application, application.state.settings)
    config.loop = "asyncio"  # loop_monitor sees no callbacks of uvloop, which uvicorn takes where Ray brought it
    with in_thread(config) as url, httpx2.Client(base_url=url, timeout=PATIENCE) as client:
        yield url, client


def connect(url: str) -> socket.socket:
    """Open a connection to a server, for bytes that no client sends."""
    address = httpx2.URL(url)
    return socket.create_connection((address.host, address.port), timeout=PATIENCE)


def exchange(url: str, sent: bytes) -> bytes:
    """Send bytes to a server, and return all that it sends until the connection ends."""
    with connect(url) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@contextmanager
def in_thread(config: uvicorn.Config, waits: bool = True) -> Iterator[str]:
    """The address of an application that a thread serves; ``waits`` for its requests at the end."""
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as own:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [own]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{own.getsockname()[1]}"
        finally:
            server.should_exit, server.force_exit = True, not waits
            thread.join()
