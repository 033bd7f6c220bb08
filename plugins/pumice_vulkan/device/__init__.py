"""The device layer: GPUs in Metal's vocabulary, on one of two drivers.

``native`` calls Vulkan through the PyPI package ``vulkan``; ``kompute`` runs on Kompute's ``kp``. Both keep the same
contract, that of ``contract.py``. Importing this package loads neither.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from pumice.plugin import BackendError
from pumice_vulkan.device.contract import (
    Buffer,
    CommandBuffer,
    ComputePipeline,
    Device,
    DeviceDescription,
    Encoder,
    MatrixShape,
)

__all__ = [
    "DRIVERS",
    "Buffer",
    "CommandBuffer",
    "ComputePipeline",
    "Device",
    "DeviceDescription",
    "Encoder",
    "MatrixShape",
    "find_device",
    "list_devices",
    "open_device",
    "resolve_driver",
]

DRIVERS = {"kompute": ["kp", "vulkan"], "native": ["vulkan"]}
"""Each driver's packages; ``auto`` is the first whose packages are installed."""


def resolve_driver(driver: str = "auto") -> str:
    """The name of an installed driver. Raises BackendError, saying what to install."""
    if driver != "auto" and driver not in DRIVERS:
        raise BackendError(f"vulkan: no driver {driver!r}; choose auto, {' or '.join(DRIVERS)}")
    for name, packages in DRIVERS.items():
        if driver in ("auto", name) and all(map(importlib.util.find_spec, packages)):
            return name
    extra = "kompute" if driver == "kompute" else "vulkan"
    raise BackendError(f"Python packages for the GPU are missing; install them with: pip install 'pumice[{extra}]'")


def list_devices(driver: str = "auto") -> list[DeviceDescription]:
    """The devices of this machine, discrete GPUs first and software last. Raises BackendError if there is no Vulkan."""
    devices: list[DeviceDescription] = _module(driver).list_devices()
    return devices


def open_device(driver: str = "auto", index: int = 0) -> Device:
    """Open the device of this index in ``list_devices``. Raises BackendError if there is none."""
    device: Device = _module(driver).open_device(index)
    return device


def find_device(driver: str, name: int | str) -> int:
    """The index of the device that a number means, or a UUID or the beginning of one, as NVIDIA's tools write it.

    Raises BackendError for a UUID that is not one device's.
    """
    if isinstance(name, int) or name.isdecimal():
        return int(name)
    devices = list_devices(driver)
    found = [device.index for device in devices if device.uuid.startswith(name.lower().removeprefix("gpu-"))]
    if len(found) != 1:
        have = "several devices have" if found else "no device has"
        known = ", ".join(device.uuid for device in devices) or "none"
        raise BackendError(f"vulkan: {have} a UUID that begins with {name!r}; there are: {known}")
    return found[0]


def _module(driver: str) -> ModuleType:
    return importlib.import_module(f"pumice_vulkan.device.{resolve_driver(driver)}")
