"""The MLX backend for tests; skipped where MLX is not installed."""

from collections.abc import Iterator

import pytest

from pumice_mlx.backend import MlxBackend, MlxOptions


@pytest.fixture(scope="module", autouse=True)
def mlx() -> None:
    """Skip the tests where MLX is not installed."""
    if reason := MlxBackend.unavailable():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def backends() -> Iterator[list[MlxBackend]]:
    """With activations of float32, as the NumPy backend has them."""
    backend = MlxBackend(MlxOptions(activations="float32"))
    yield [backend]
    backend.close()
