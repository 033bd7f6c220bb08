"""The CPU backend for tests."""

from collections.abc import Iterator

import pytest

from pumice_cpu import CpuBackend


@pytest.fixture(scope="module")
def backends() -> Iterator[list[CpuBackend]]:
    """Return backends of one thread and of two."""
    made = [CpuBackend(CpuBackend.Options(threads=threads)) for threads in (1, 2)]
    yield made
    for backend in made:
        backend.close()
