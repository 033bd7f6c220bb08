"""The device layer: GPUs in Metal's vocabulary, on one of two drivers.

``native`` calls Vulkan's loader itself; ``kompute`` uses Kompute's ``kp``. Both implement the
contract in ``contract.py`` and ``device.py``. Importing this package loads neither.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from pumice.plugin import BackendError
from pumice.plugin.unstable import install_command
from pumice_vulkan.device.contract import (
    Buffer,
    CommandBuffer,
    ComputePipeline,
    DeviceDescription,
    Encoder,
    Launch,
    MatrixShape,
)
from pumice_vulkan.device.device import Device

__all__ = [
    "DRIVERS",
    "Buffer",
    "CommandBuffer",
    "ComputePipeline",
    "Device",
    "DeviceDescription",
    "Encoder",
    "Launch",
    "MatrixShape",
    "find_device",
    "list_devices",
    "open_device",
    "resolve_driver",
]

DRIVERS: dict[str, list[str]] = {"native": [], "kompute": ["kp"]}
"""Python packages of each driver; ``auto`` is the first, which is the faster one."""


def resolve_driver(driver: str = "auto") -> str:
    """Return the name of an installed driver. Raises BackendError with the packages to install."""
    name = next(iter(DRIVERS)) if driver == "auto" else driver
    if name not in DRIVERS:
        raise BackendError(f"vulkan: unknown driver {name!r}; choose auto, {' or '.join(DRIVERS)}")
    if all(map(importlib.util.find_spec, DRIVERS[name])):
        return name
    raise BackendError(f"Python packages for the GPU are missing; install them with: {install_command(name)}")


def list_devices(driver: str = "auto") -> list[DeviceDescription]:
    """Return this machine's devices, discrete GPUs first and software last. Raises BackendError without Vulkan."""
    devices: list[DeviceDescription] = _module(driver).list_devices()
    return devices


def open_device(driver: str = "auto", index: int = 0) -> Device:
    """Open the device with this index in ``list_devices``. Raises BackendError if there is none."""
    device: Device = _module(driver).open_device(index)
    return device


def find_device(driver: str, name: int | str) -> int:
    """Return the index of a device given by number, by UUID as in NVIDIA's tools, or by a prefix of the UUID.

    Raises BackendError if the UUID does not identify one device.
    """
    if isinstance(name, int) or name.isdecimal():
        return int(name)
    devices = list_devices(driver)
    matches = [device.index for device in devices if device.uuid.startswith(name.lower().removeprefix("gpu-"))]
    if len(matches) != 1:
        have = "several devices have" if matches else "no device has"
        uuids = ", ".join(device.uuid for device in devices) or "none"
        raise BackendError(f"vulkan: {have} a UUID that begins with {name!r}; available: {uuids}")
    return matches[0]


def _module(driver: str) -> ModuleType:
    return importlib.import_module(f"pumice_vulkan.device.{resolve_driver(driver)}")
