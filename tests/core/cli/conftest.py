"""A small model for commands."""

import pytest

from gguf_files import tiny_llama


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a small model with random weights."""
    return str(tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf"))
