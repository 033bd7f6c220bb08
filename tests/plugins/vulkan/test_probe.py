"""Whether matrix units can be trusted is asked once for a device and its driver."""

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pumice_vulkan import probe
from pumice_vulkan.device import DeviceDescription, open_device


def described(**changes: Any) -> DeviceDescription:
    made = DeviceDescription(
        0, 0, "a GPU", "native", "driver 1", "vendor", "", "discrete", "1.3.0", 1, 32, 1, (1, 1, 1), 1, 1, 1, 1.0,
        frozenset(), (),
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def test_a_right_result_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUMICE_CACHE", str(tmp_path))
    asked: list[str] = []
    codes = iter([1, 0, 0])

    def run(command: list[str], **options: Any) -> Any:
        asked.append(command[-1])
        return subprocess.CompletedProcess(command, next(codes), f"{probe.KERNEL} {probe.LANES_KERNEL}\n")

    monkeypatch.setattr(subprocess, "run", run)
    results = []
    for description in (described(), described(), described(), described(vulkan_driver="driver 2")):
        probe._probe.cache_clear()
        results.append(probe._probe(description, probe.SHAPE))
    probe._probe.cache_clear()
    right = frozenset({probe.KERNEL, probe.LANES_KERNEL})
    assert results == [frozenset(), right, right, right]
    assert len(asked) == 3


def test_a_failed_probe_says_why(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def run(command: list[str], **options: Any) -> Any:
        return subprocess.CompletedProcess(command, 1, "", "Traceback\nValueError: a parameter is missing\n")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(probe, "_files", lambda description, shape: [])
    probe._probe.cache_clear()
    with caplog.at_level("INFO", logger="pumice"):
        assert not probe._probe(described(), probe.SHAPE)
    probe._probe.cache_clear()
    assert "a GPU are not used, since their probe failed: ValueError: a parameter is missing" in caplog.text


@pytest.mark.usefixtures("vulkan_device")
def test_products_in_float16_are_right_where_small_numbers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_device("native", 0) as device:
        if "float16" not in device.features:
            pytest.skip("the device does not compute in float16")
        assert probe.halves_are_right(device)

    def flushed(device: Any, kernel: str, operands: Any, n_columns: int, constants: Any) -> Any:
        x = operands[0].view(np.float32).reshape(-1, n_columns)
        products = x[:, None] * probe._q4_0_matrix(n_columns)[1] / 16  # as the kernel scales activations
        return 16 * np.where(np.abs(products) < np.finfo(np.float16).smallest_normal, 0, products).sum(2)

    monkeypatch.setattr(probe, "_product", flushed)
    assert not probe.halves_are_right(described())  # type: ignore[arg-type]
