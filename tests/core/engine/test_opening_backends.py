"""Backends whose devices are opened in a thread while a model's file is read."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path
from unittest import mock

import pytest

import pumice
from gguf_files import tiny_llama
from pumice.config import load_config
from pumice.engine.placement import backends as backends_module
from pumice.engine.placement.backends import OpeningBackends
from pumice.errors import BackendError
from pumice.registry import get_registry


class Device:
    """A backend that notes what happens to it."""

    offload = True

    def __init__(self) -> None:
        self.events: list[str] = []
        self.opens = threading.Event()
        self.error: Exception | None = None

    def free_memory(self) -> list[int | None]:
        assert self.opens.wait(60)
        self.events.append("opened")
        if self.error:
            raise self.error
        return [None]

    def close(self) -> None:
        self.events.append("closed")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setattr(backends_module, "backend_line", lambda registry, config: [("gpu", device)])
    return device


def _opening(backend: str = "vulkan") -> OpeningBackends:
    config = load_config({"backend": backend})
    return OpeningBackends(get_registry(config), config)


def test_the_line_is_there_before_the_devices_are_open(device: Device) -> None:
    opening = _opening()
    assert opening.line == [("gpu", device)]
    assert not device.events
    device.opens.set()
    opening.wait()
    assert device.events == ["opened"]
    opening.close()
    opening.close()
    assert device.events == ["opened", "closed"]


def test_closing_waits_for_a_device_that_opens(device: Device) -> None:
    opening = _opening()
    closing = threading.Thread(target=opening.close)
    closing.start()
    device.opens.set()
    closing.join(60)
    assert device.events == ["opened", "closed"]


def test_an_error_of_a_device(device: Device) -> None:
    device.error = BackendError("no memory")
    device.opens.set()
    opening = _opening()
    assert opening.line == [("gpu", device)]
    with pytest.raises(BackendError, match="no memory"):
        opening.wait()
    opening.close()
    assert device.events == ["opened", "closed"]


def test_without_another_thread(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device.opens.set()
    monkeypatch.setattr(threading.Thread, "start", mock.Mock(side_effect=RuntimeError("can't start new thread")))
    opening = _opening()
    assert device.events == ["opened"]
    opening.wait()
    opening.close()


def test_a_line_without_gpus_needs_no_thread(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", mock.Mock(side_effect=AssertionError))
    device.opens.set()
    opening = _opening("numpy")
    assert opening.line == [("gpu", device)]
    opening.close()


def test_an_error_of_the_line_is_raised_to_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends_module, "backend_line", mock.Mock(side_effect=BackendError("no backend")))
    opening = _opening()
    for wait in (opening.wait, lambda: opening.line):
        with pytest.raises(BackendError, match="no backend"):
            wait()
    opening.close()


def test_a_file_that_cannot_be_read_closes_the_backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = mock.Mock()
    monkeypatch.setattr(OpeningBackends, "close", lambda self: closed())
    path = tmp_path / "bad.gguf"
    tiny_llama(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(pumice.PumiceError, match="number of tensors"):
        pumice.load(path, backend="numpy")
    closed.assert_called()


def test_work_while_a_device_opens(device: Device) -> None:
    opening = _opening()
    opening.wait(device.opens.set)
    assert device.events == ["opened"]
    called = mock.Mock()
    opening.wait(called)
    called.assert_not_called()
    opening.close()


def test_loading_opens_the_device_before_the_model_is_imported(device: Device, tmp_path: Path) -> None:
    """A later failure closes the device."""
    device.opens.set()
    with mock.patch.dict(sys.modules, {"pumice.model": None}), pytest.raises(ImportError):
        pumice.load(tiny_llama(tmp_path / "tiny.gguf"), backend="vulkan")
    assert device.events == ["opened", "closed"]
    device.events.clear()
    with pytest.raises(pumice.GGUFError):
        pumice.load(Path(__file__), backend="vulkan")
    assert device.events == ["opened", "closed"]
    assert gc.isenabled()
