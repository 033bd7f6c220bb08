"""An open device, and the creation of its objects."""

from __future__ import annotations

from collections.abc import Sequence

from pumice_vulkan.device.checks import choose
from pumice_vulkan.device.contract import DeviceDescription
from pumice_vulkan.device.device import Device
from pumice_vulkan.device.native.commands import NativeCommandBuffer
from pumice_vulkan.device.native.descriptors import Descriptors
from pumice_vulkan.device.native.instance import instance
from pumice_vulkan.device.native.logical import LogicalDevice
from pumice_vulkan.device.native.memory import NativeBuffer
from pumice_vulkan.device.native.pipeline import NativePipeline


class NativeDevice(Device):
    """A logical Vulkan device. Closing it closes all open buffers, pipelines and command buffers."""

    compiles_beside = True

    def __init__(self, index: int) -> None:
        self._logical = LogicalDevice(choose(instance().devices, index), index)
        self._descriptors = Descriptors(self._logical)
        super().__init__(self._logical.description, self._logical.ledger)

    @property
    def free_memory_bytes(self) -> int:
        return self._logical.physical.free_memory_bytes(self.own_bytes)

    def limit(self, description: DeviceDescription) -> None:
        super().limit(description)
        self._logical.limit(description)

    def new_command_buffer(self, timestamps: int = 0) -> NativeCommandBuffer:
        return NativeCommandBuffer(self._logical, self._descriptors, timestamps)

    @property
    def knows_pipelines(self) -> bool:
        return self._logical.pipeline_cache.is_known

    def keep_pipelines(self) -> None:
        self._logical.pipeline_cache.save()

    def _allocate(self, n_bytes: int, host: bool) -> NativeBuffer:
        return NativeBuffer(self._logical, n_bytes, host)

    def _compile(
        self, spirv: bytes, n_buffers: int, push_bytes: int, constants: Sequence[int], full_subgroups: bool
    ) -> NativePipeline:
        layout = self._descriptors.pipeline_layout(n_buffers, push_bytes)
        return NativePipeline(self._logical, layout, spirv, n_buffers, push_bytes, constants, full_subgroups)

    def _wait_idle(self) -> None:
        self._logical.wait_idle()

    def _destroy(self) -> None:
        self._descriptors.close()
        self._logical.close()


def open_device(index: int) -> NativeDevice:
    return NativeDevice(index)
