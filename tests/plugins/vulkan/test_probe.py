"""Whether matrix units can be trusted is asked once for a device and its driver."""

import dataclasses
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pumice_vulkan import probe
from pumice_vulkan.backend import _use_half
from pumice_vulkan.device import DeviceDescription, open_device
from pumice_vulkan.flags import FIXED
from pumice_vulkan.lower.halves import LANE_ORDER
from pumice_vulkan.shaders import interface, shader


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


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PUMICE_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(subprocess, "run", lambda command, **options: subprocess.CompletedProcess(command, 0, "one"))
    probe._probe.cache_clear()
    assert probe._probe(described(name="another"), probe.SHAPE) == {"one"}
    probe._probe.cache_clear()


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


def test_lanes_are_asked_of_their_vendor_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that cannot have the expected division of fragments, or that a workgroup does not fit, is not asked."""
    fits = {"max_threads_per_threadgroup": 1024, "threadgroup_memory_bytes": 48 * 1024, "vendor": "NVIDIA"}
    fits |= {"features": frozenset({"float16", "cooperative_matrix"}), "cooperative_matrices": (probe.SHAPE,)}
    assert probe.has_lanes(described(**fits))
    for name, value in (
        ("vendor", "AMD"),
        ("subgroup_size", 64),
        ("threadgroup_memory_bytes", 32 * 1024),
        ("cooperative_matrices", ()),
    ):
        assert not probe.has_lanes(described(**{**fits, name: value}))


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


def test_float16_is_chosen_on_gpus_that_have_nothing_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "halves_are_right", lambda device: device.name != "flushes")

    def is_chosen(name: str = "a GPU", suits: bool = True, feature: str = "float16", software: bool = False) -> bool:
        device = SimpleNamespace(name=name, features={feature}, description=SimpleNamespace(software=software))
        return _use_half("auto", device, suits)  # type: ignore[arg-type]

    assert is_chosen()
    assert not is_chosen(suits=False)
    assert not is_chosen(feature="float64")
    assert not is_chosen(name="flushes")
    assert not is_chosen(software=True)


@pytest.mark.usefixtures("vulkan_device")
def test_the_order_of_lanes_is_that_of_the_shaders() -> None:
    """Activations that shaders/half.comp stores for the kernel lie as the probe, which tests the kernel, lays them."""
    x = np.random.default_rng(2).integers(-100, 100, (21, 128)).astype(np.float32)
    with open_device("native", 0) as device:
        given, y = device.new_buffer(x.nbytes, host=True), device.new_buffer(2 * 32 * 128, host=True)
        given.contents[:] = x.reshape(-1).view(np.uint8)
        y.contents[:] = 0
        step = device.new_buffer(64, host=True)
        declared = interface("half")
        push = declared.pack(rows=FIXED | 21, x_at=0, y_at=0, n_quads=32)
        pipeline = device.new_pipeline(shader("half"), 3, len(push), [2, LANE_ORDER])
        command = device.new_command_buffer()
        encoder = command.encoder()
        encoder.set_pipeline(pipeline)
        for i, buffer in enumerate((step, given, y)):
            encoder.set_buffer(i, buffer)
        encoder.set_bytes(push)
        encoder.dispatch_threadgroups(1, 21)
        encoder.end()
        command.commit_and_wait()
        stored = y.contents.view(np.float16).copy()
    swapped = x.reshape(21, 32, 4)[..., [0, 2, 1, 3]].astype(np.float16)
    assert np.array_equal(stored, probe._in_lanes(swapped).reshape(-1))
    assert not np.array_equal(stored[: 21 * 128], swapped.reshape(-1))
