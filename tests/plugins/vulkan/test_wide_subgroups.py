"""Kernels with subgroups as wide as those of AMD, Qualcomm and NVIDIA, which lavapipe emulates (wide_subgroups.py)."""

import os

import pytest

from pumice.device_checks import all_cases, check_cases
from pumice_vulkan import VulkanBackend
from pumice_vulkan.backend import VulkanOptions
from pumice_vulkan.device import list_devices
from wide_subgroups import subgroups_of

PRODUCTS = ("linear Q4_0, 1 token", "linear Q4_K, 4 tokens", "experts Q4_0, 4 tokens")
OTHERS = ("rms_norm, 4 tokens", "softmax, 4 tokens", "route by softmax, 4 tokens", "attention f16, 1 token")
ALL = "PUMICE_TEST_ALL_LANES" in os.environ
"""Whether to compute all operations of `pumice doctor --report`, which takes minutes."""


@pytest.mark.usefixtures("vulkan_device")
@pytest.mark.parametrize(
    ("size", "activations", "names"),
    [
        (64, "float", PRODUCTS + OTHERS),
        pytest.param(64, "int8", PRODUCTS, marks=pytest.mark.nightly),
        (128, "float", PRODUCTS[:1] + OTHERS[-1:]),
        (32, "float", PRODUCTS[:1]),
    ],
)
def test_operations_with_wide_subgroups(size: int, activations: str, names: tuple[str, ...]) -> None:
    if not list_devices("native")[0].software:
        pytest.skip("only lavapipe's subgroups can be emulated")
    cases = [case for case in all_cases() if ALL or case.name in names]
    assert ALL or len(cases) == len(names)
    options = VulkanOptions(driver="native", activations=activations, prepare="never")
    with subgroups_of(size):
        checks = list(check_cases(lambda: VulkanBackend(options), iter(cases)))
    assert [(check.name, check.problem) for check in checks if check.problem] == []
    assert ALL or all(check.difference is not None for check in checks)
