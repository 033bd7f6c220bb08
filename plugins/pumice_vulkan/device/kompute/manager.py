"""Kompute's manager, and what buffers, pipelines and command buffers need of a device."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from pumice.plugin import BackendError
from pumice_vulkan.device.contract import DeviceDescription
from pumice_vulkan.device.kompute.api import kp
from pumice_vulkan.device.ledger import Ledger
from pumice_vulkan.device.native.features import STRUCTS
from pumice_vulkan.device.native.instance import PhysicalDevice

WITHOUT = {"subgroup_size_control", "full_subgroups"}
"""What Kompute gives no way to ask for."""


class Manager:
    """A ``kp.Manager``, and the account of what was made with it."""

    def __init__(self, physical: PhysicalDevice, index: int) -> None:
        self.description = describe(physical, index)
        self.ledger = Ledger()
        extensions = [item.extension for item in STRUCTS if item.extension in physical.extensions]
        try:
            self.handle = kp.Manager(self.description.loader_index, [], extensions)
        except RuntimeError as error:
            raise BackendError(f"vulkan: Kompute cannot open the device: {error}") from None
        word = self.handle.tensor_t(np.zeros(1, np.uint32), kp.TensorTypes.device)
        sync = kp.OpTensorSyncLocal([word])
        self.ordering = [] if self.description.vendor == "NVIDIA" else [sync]
        self.waits = self._waits(sync)

    def _waits(self, operation: Any) -> bool:
        """Whether ``eval_async()`` waits: in kp as published it does, tools/build_kompute.sh mends it."""
        sequence = self.handle.sequence().record(operation).eval_async()
        waits = not sequence.is_running()
        if not waits:
            sequence.eval_await()
        sequence.destroy()
        return waits

    def close(self) -> None:
        """After all that was made with it is closed."""
        self.ordering = []
        self.handle.destroy()


def describe(physical: PhysicalDevice, index: int) -> DeviceDescription:
    found = physical.describe(index)
    return dataclasses.replace(found, driver="kompute", features=found.features - WITHOUT)
