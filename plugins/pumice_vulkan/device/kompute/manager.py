"""Kompute's manager, and the state shared by buffers, pipelines and command buffers of a device."""

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
"""Features that cannot be enabled through Kompute."""


class Manager:
    """A ``kp.Manager``, and a ledger of the objects made with it."""

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
        """Return True if ``eval_async()`` blocks, as in the published kp; tools/build_kompute.sh patches it."""
        sequence = self.handle.sequence().record(operation).eval_async()
        waits = not sequence.is_running()
        if not waits:
            sequence.eval_await()
        sequence.destroy()
        return waits

    def close(self) -> None:
        """Close the manager, after all objects made with it."""
        self.ordering = []
        self.handle.destroy()


def describe(physical: PhysicalDevice, index: int) -> DeviceDescription:
    description = physical.describe(index)
    return dataclasses.replace(description, driver="kompute", features=description.features - WITHOUT)
