"""A server with the demo model."""

from collections.abc import Iterator

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
