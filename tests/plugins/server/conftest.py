"""A server with the demo model."""

from collections.abc import Iterator
from typing import Any

import pytest

import pumice
from server_thread import Running, running


@pytest.fixture(scope="session")
def model() -> Iterator[pumice.Model]:
    with pumice.load(config={"chat_template": "plain", "max_queue": 32}) as model:
        yield model


@pytest.fixture(scope="session")
def server(model: pumice.Model) -> Iterator[Running]:
    with running(model) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Any) -> Iterator[Any]:
    """OpenAI's own client of the module's server."""
    import openai

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as client:
        yield client
