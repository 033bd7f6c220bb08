"""Every kernel against the NumPy backend, on whatever device is first: in CI, one that the processor plays."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graphs import Case, Graphed, batch, limits
from pumice_numpy import NumpyBackend
from pumice_vulkan import VulkanBackend

os.environ.setdefault("PUMICE_VULKAN_SOFTWARE", "1")
pytestmark = pytest.mark.skipif(VulkanBackend.unavailable() is not None, reason="no Vulkan device")

RNG = np.random.default_rng(1)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


CASES: dict[str, Callable[[], Case]] = {
    "add": lambda: Case(lambda g, a: g.add(a["x"], a["y"]), {"x": normal(5, 3, 7), "y": normal(5, 3, 7)}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_operation(tmp_path: Path, name: str) -> None:
    case = CASES[name]()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    size = len(next(iter(case.activations.values())))
    step = batch([size])
    expected = Graphed(tmp_path / "a", NumpyBackend(), case, limits())(case.activations, step)
    backend = VulkanBackend()
    actual = Graphed(tmp_path / "b", backend, case, limits())(case.activations, step)
    backend.close()
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
