"""An open device of Kompute."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from pumice.plugin import BackendError
from pumice_vulkan.device.checks import choose
from pumice_vulkan.device.contract import DeviceDescription
from pumice_vulkan.device.kompute.api import kp
from pumice_vulkan.device.kompute.commands import KomputeCommandBuffer
from pumice_vulkan.device.kompute.memory import KomputeBuffer
from pumice_vulkan.device.kompute.pipeline import KomputePipeline
from pumice_vulkan.device.ledger import LedgerDevice
from pumice_vulkan.device.native.features import STRUCTS
from pumice_vulkan.device.native.instance import PhysicalDevice, instance
from pumice_vulkan.shaders import shader

WITHOUT = {"subgroup_size_control", "full_subgroups"}
"""What Kompute gives no way to ask for."""


class KomputeDevice(LedgerDevice):
    """A ``kp.Manager``, and beside it an instance of Vulkan that knows what Kompute does not tell: memory, features.

    What differs from ``native``:

    - ``commit`` waits, and costs about half a millisecond, since Kompute makes a fence each time.
    - Every dispatch records barriers for its buffers; on some drivers, NVIDIA's among them, independent dispatches
      do not overlap.
    - ``barrier`` needs a copy of one word between two dispatches, which makes the order compute, transfer, compute.
      On NVIDIA's driver the barriers that Kompute records itself order as much, so the copy is left out there.
    - A pipeline is compiled for each combination of buffers and grid, when it is first recorded.
    - Device features are not turned on, as drivers demand by the letter of the specification: ``features`` are those
      of the hardware, and a kernel that needs one should be tried on a small input before it is relied upon.
    - Host buffers may lie in memory that the processor does not cache: write there freely, read little.
    """

    def __init__(self, index: int) -> None:
        super().__init__()
        self._physical = choose(instance().devices, index)
        self.description = _describe(self._physical, index)
        extensions = [item.extension for item in STRUCTS if item.extension in self._physical.extensions]
        try:
            self.manager = kp.Manager(self.description.loader_index, [], extensions)
        except RuntimeError as error:
            raise BackendError(f"vulkan: Kompute cannot open the device: {error}") from None
        word = self.manager.tensor_t(np.zeros(1, np.uint32), kp.TensorTypes.device)
        self.ordering = [] if self.description.vendor == "NVIDIA" else [kp.OpTensorSyncLocal([word])]

    @functools.cached_property
    def copy_pipeline(self) -> KomputePipeline:
        return self._compile(shader("copy"), 2, 12, (), False)

    @property
    def free_memory_bytes(self) -> int:
        return self._physical.free_memory_bytes(self.allocated_bytes)

    def new_buffer(self, n_bytes: int, *, host: bool = False) -> KomputeBuffer:
        return KomputeBuffer(self, n_bytes, host)

    def _compile(
        self, spirv: bytes, n_buffers: int, push_bytes: int, constants: Sequence[int], full_subgroups: bool
    ) -> KomputePipeline:
        return KomputePipeline(self, spirv, n_buffers, push_bytes, constants)

    def new_command_buffer(self, timestamps: int = 0) -> KomputeCommandBuffer:
        return KomputeCommandBuffer(self, timestamps)

    def forget(self, buffer: KomputeBuffer) -> None:
        """Free what is bound to a buffer that is being closed."""
        for item in self.items():
            if isinstance(item, KomputePipeline):
                item.forget(buffer)

    def _wait_idle(self) -> None:
        return  # every commit has waited

    def _destroy(self) -> None:
        self.ordering = []
        self.manager.destroy()


def open_device(index: int) -> KomputeDevice:
    return KomputeDevice(index)


def list_devices() -> list[DeviceDescription]:
    return [_describe(device, index) for index, device in enumerate(instance().devices)]


def _describe(physical: PhysicalDevice, index: int) -> DeviceDescription:
    found = physical.describe(index)
    return dataclasses.replace(found, driver="kompute", features=found.features - WITHOUT)
