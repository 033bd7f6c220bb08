"""A small model for commands, and sessions of a chat."""

from pathlib import Path

import pytest

from pumice.cli.chat.session import Session


@pytest.fixture(scope="session")
def model(path: Path) -> str:
    return str(path)


@pytest.fixture
def session(capfdbinary):
    """Run a session over lines, some of which may be exceptions; what it wrote and what it said."""

    def session(conversation, *lines, **options):
        coming = iter([*lines, EOFError()])

        def read() -> str:
            line = next(coming)
            if isinstance(line, BaseException):
                raise line
            return line

        Session(conversation, read, **options).run()
        return [written.decode() for written in capfdbinary.readouterr()]

    return session
