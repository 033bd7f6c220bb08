"""Backends whose devices are opened in a thread while a model's file is read."""

from __future__ import annotations

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


def test_a_file_that_cannot_be_read_closes_the_backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = mock.Mock()
    monkeypatch.setattr(OpeningBackends, "close", lambda self: closed())
    path = tmp_path / "bad.gguf"
    tiny_llama(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(pumice.PumiceError, match="number of tensors"):
        pumice.load(path, backend="numpy")
    closed.assert_called()
