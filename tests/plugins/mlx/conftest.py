"""The MLX backend for tests; skipped where MLX is not installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from pumice_mlx.backend import MlxBackend, MlxOptions

if TYPE_CHECKING:
    import mlx.core as mx


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


@pytest.fixture(scope="session")
def cuda_kernel(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Callable[..., list[mx.array]]]:
    """Stand for ``mx.fast.cuda_kernel``; a kernel is compiled for the first test that calls it."""
    import cuda_emulator  # needs MLX

    return cuda_emulator.cuda_kernel(tmp_path_factory.mktemp("cuda"))
