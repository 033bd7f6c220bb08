"""A chat model whose answers are given."""

from collections.abc import Iterator

import pytest

import pumice
from scripted_calls import scripted_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pumice.Model]:
    """A model with tools, which writes the option ``script``."""
    with scripted_model(tmp_path_factory.mktemp("scripted")) as model:
        yield model
