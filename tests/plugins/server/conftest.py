"""A server with the demo model."""

import time
from collections.abc import Callable, Iterator

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


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    return wait
