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
from pumice_server.application import make_application
from pumice_server.service import Service
from pumice_server.settings import Settings


class Running(NamedTuple):
    url: str
    model: pumice.Model
    client: httpx2.Client
    application: Starlette


@contextmanager
def running(model: pumice.Model, **settings: Any) -> Iterator[Running]:
    """A server of its own for ``model``."""
    chosen = Settings(**settings)
    service = Service(model, ["demo", "other-name"], chosen.timeout, chosen.max_sequences)
    application = make_application(service, chosen)
    config = uvicorn.Config(application, http="h11", lifespan="off", log_config=None, ws="none")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with httpx2.Client(base_url=url, timeout=60) as client:
                yield Running(url, model, client, application)
        finally:
            server.should_exit = True
            thread.join()
