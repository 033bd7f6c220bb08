"""Whether matrix units can be trusted is asked once for a device and its driver."""

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pumice_vulkan import probe
from pumice_vulkan.device import DeviceDescription


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
        return subprocess.CompletedProcess(command, next(codes))

    monkeypatch.setattr(subprocess, "run", run)
    results = []
    for description in (described(), described(), described(), described(vulkan_driver="driver 2")):
        probe._probe.cache_clear()
        results.append(probe._probe(description))
    probe._probe.cache_clear()
    assert results == [False, True, True, True]
    assert len(asked) == 3


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PUMICE_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(subprocess, "run", lambda command, **options: subprocess.CompletedProcess(command, 0))
    probe._probe.cache_clear()
    assert probe._probe(described(name="another"))
    probe._probe.cache_clear()


def test_a_failed_probe_says_why(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def run(command: list[str], **options: Any) -> Any:
        return subprocess.CompletedProcess(command, 1, "", "Traceback\nValueError: a parameter is missing\n")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(probe, "_files", lambda description: [])
    probe._probe.cache_clear()
    with caplog.at_level("INFO", logger="pumice"):
        assert not probe._probe(described())
    probe._probe.cache_clear()
    assert "a GPU are not used, since their probe failed: ValueError: a parameter is missing" in caplog.text
