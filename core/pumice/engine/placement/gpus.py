"""Choose the GPUs of a backend by the options ``devices``, ``split_mode`` and ``main_gpu``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pumice.backend import Backend
from pumice.config import ARGUMENTS, Config
from pumice.engine.placement.overrides import HOST, DeviceName, parse_device
from pumice.errors import BackendError, ConfigError
from pumice.wording import counted_as

NONE = "none"


def named_devices(config: Config) -> list[DeviceName] | None:
    """Return the GPUs that ``devices`` names, all of one backend; None if it names none. Empty: use no GPU.

    Raises ConfigError for a text that is no device, or devices of several backends.
    """
    if not config.devices:
        return None
    source = config.source("devices")
    where = "devices" if source == ARGUMENTS else f"{source}: devices"
    if NONE in [name.lower() for name in config.devices]:
        if len(config.devices) > 1:
            raise ConfigError(f"{where}: {NONE!r} stands alone, in {', '.join(config.devices)!r:.200}")
        return []
    devices = []
    for text in config.devices:
        device = parse_device(text)
        if device is None:
            raise ConfigError(f"{where}: {text!r} is not a device such as Vulkan0, or none; see `pumice devices`")
        if device != HOST:
            devices.append(device)
    if len({device.backend for device in devices}) > 1:
        raise ConfigError(f"{where}: {', '.join(map(str, devices))} belong to several backends; name those of one")
    if len(set(devices)) < len(devices):
        raise ConfigError(f"{where}: {', '.join(map(str, devices))}: a device is named twice")
    return devices


def choose_gpus(name: str, backend: type[Backend], config: Config) -> dict[str, Any]:
    """Return the options of a GPU backend's section, with the ``devices`` that the configuration asks for.

    Raises BackendError for a device that does not exist, or if the backend cannot choose.
    """
    options = config.backend_options(name)
    if not backend.offload:
        return options
    named = named_devices(config)
    if named is None and config.split_mode == "auto":
        return options
    n_devices = len(backend.devices())
    if named is None:
        named = [DeviceName(name, number) for number in _gpus(backend)]
    for device in named:
        if device.number >= n_devices:
            count = counted_as(n_devices, "device")
            raise BackendError(f"devices: no device {device}: {name} has {count}; see `pumice devices`")
    if config.split_mode == "none":
        if config.main_gpu >= len(named):
            raise BackendError(f"main_gpu is {config.main_gpu}, but the last chosen device is {len(named) - 1}")
        named = [named[config.main_gpu]]
    if "devices" not in {field.name for field in dataclasses.fields(backend.Options)}:
        if len(named) > 1 or named[0].number:
            raise BackendError(f"devices: backend {name} uses its first device only")
        return options
    return {**options, "devices": [device.number for device in named]}


def _gpus(backend: type[Backend]) -> Sequence[int]:
    """Return the numbers of a backend's GPUs, or of all devices if none of them is a GPU."""
    devices = backend.devices()
    return [i for i, device in enumerate(devices) if device.kind == "gpu"] or range(len(devices))
