"""A small model for commands."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model(path: Path) -> str:
    return str(path)
