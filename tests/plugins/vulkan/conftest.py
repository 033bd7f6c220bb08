"""Vulkan devices for tests: Mesa's lavapipe (Debian: mesa-vulkan-drivers), or GPUs (``PUMICE_TEST_GPU=1``)."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from pumice.engine.drafts.choice import StepCosts
from pumice.plugin import BackendError
from pumice_vulkan import VulkanBackend
from pumice_vulkan.backend import VulkanOptions
from pumice_vulkan.device import DRIVERS, Device, list_devices, open_device
from pumice_vulkan.kernels import code_of
from pumice_vulkan.probe import matrix_shape
from pumice_vulkan.shaders import rolled
from wide_subgroups import subgroups_of

if TYPE_CHECKING:
    from kept_pipelines import KeptPipelines

REQUIRED = os.environ.get("PUMICE_REQUIRE_DRIVERS", "").split()
"""Drivers whose tests fail instead of being skipped where they are not installed."""

LANES = int(os.environ.get("PUMICE_TEST_LANES", "0"))
"""Size of the subgroups that the native driver's devices have in tests, such as 64 for AMD's; 0: their own."""


@pytest.fixture(autouse=True)
def allow_software(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the backend take a software device."""
    monkeypatch.setenv("PUMICE_VULKAN_SOFTWARE", "1")


ROLLED = ("attention_", "matmul", "matvec")
"""Kernels of the longest code. Lavapipe computes the persistent ones wrongly without unrolling."""


@pytest.fixture(autouse=True, scope="package")
def rolled_loops() -> Iterator[None]:
    """Ask drivers not to unroll loops: lavapipe would compile long code, for many times as long as tests run it."""
    chosen = mock.patch(
        "pumice_vulkan.kernels.code_of",
        lambda name, avoided: rolled(name) if name.startswith(ROLLED) else code_of(name, avoided),
    )
    with chosen, subgroups_of(LANES) if LANES else nullcontext():
        yield


@pytest.fixture(scope="session")
def all_kept_pipelines() -> Iterator[KeptPipelines]:
    """The pipelines that this process keeps."""
    from kept_pipelines import KeptPipelines  # needs a Vulkan loader

    kept = KeptPipelines()
    yield kept
    kept.close()


@pytest.fixture(scope="module")
def kept_pipelines(all_kept_pipelines: KeptPipelines) -> Iterator[None]:
    """Let the module's tests compile a pipeline once. For tests of what pipelines compute, not of devices."""
    with all_kept_pipelines.lent():
        yield


@pytest.fixture(scope="module")
def unmeasured_steps() -> Iterator[None]:
    """Load models without measuring steps, whose kernels lavapipe would compile. For tests of what is computed."""
    with mock.patch("pumice.engine.drafts.speculation.measure_costs", return_value=StepCosts()):
        yield


@pytest.fixture(scope="session")
def vulkan_device() -> None:
    """Skip the test where the backend finds no device."""
    with mock.patch.dict(os.environ, {"PUMICE_VULKAN_SOFTWARE": "1"}):
        reason = VulkanBackend.unavailable()
    if reason:
        where = "tests take Mesa's lavapipe (.ci/vulkan), or this machine's GPU with PUMICE_TEST_GPU=1"
        (pytest.fail if REQUIRED else pytest.skip)(f"{reason} ({where})")


@pytest.fixture(scope="session")
def rounding(vulkan_device: None) -> float:
    """Share of the range of results that the device's rounding changes; 0 if it computes in float32 alone.

    Matrix units read activations as float16, and products of a few rows as int8 where these are fast.
    """
    description = list_devices()[0]
    is_exact = matrix_shape(description) is None and "integer_dot_product_fast" not in description.features
    return 0.0 if is_exact else 0.02


@pytest.fixture(scope="session", params=["native", "kompute"])
def driver(request: pytest.FixtureRequest) -> str:
    """Each driver that is installed."""
    name = request.param
    missing = [package for package in DRIVERS[name] if importlib.util.find_spec(package) is None]
    problem = f"not installed: {', '.join(missing)}" if missing else None
    try:
        if not missing and not list_devices(name):
            problem = "no Vulkan device"
    except BackendError as error:
        problem = str(error)
    if problem:
        (pytest.fail if name in REQUIRED else pytest.skip)(f"driver {name}: {problem}")
    return name


@pytest.fixture
def device(driver: str) -> Iterator[Device]:
    """The first device, opened for one test."""
    with open_device(driver) as device:
        yield device


@pytest.fixture
def vulkan(driver: str) -> Iterator[VulkanBackend]:
    """The backend with each driver."""
    backend = VulkanBackend(VulkanOptions(driver=driver, prepare="never"))  # no thread outlives the device
    yield backend
    backend.close()
