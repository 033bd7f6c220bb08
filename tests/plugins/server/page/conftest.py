"""A browser, and the page in it before a server whose answers are scripted.

What needs playwright is imported by the fixtures: where it is not installed, tests that import it are skipped.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from scripted_server import Scripted, scripted


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from browser_page import started

    with started() as browser:
        yield browser


@pytest.fixture(scope="module")
def chats() -> Iterator[Scripted]:
    with scripted() as server:
        yield server


@pytest.fixture
def context(browser: Any) -> Iterator[Any]:
    from browser_page import profile

    with profile(browser) as context:
        yield context


@pytest.fixture
def page(context: Any, chats: Scripted) -> Iterator[Any]:
    from browser_page import opened

    page = opened(context, chats.url)
    yield page
    assert page.problems == []
