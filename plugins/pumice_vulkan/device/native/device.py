"""An open device, and the making of what runs on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pumice.plugin import BackendError
from pumice_vulkan.device.checks import choose
from pumice_vulkan.device.ledger import LedgerDevice
from pumice_vulkan.device.native.api import ffi, lib, reporting, vk
from pumice_vulkan.device.native.commands import NativeCommandBuffer
from pumice_vulkan.device.native.descriptors import Descriptors
from pumice_vulkan.device.native.features import new_struct
from pumice_vulkan.device.native.instance import MEMORY_BUDGET, instance
from pumice_vulkan.device.native.memory import NativeBuffer
from pumice_vulkan.device.native.pipeline import NativePipeline

PORTABILITY = "VK_KHR_portability_subset"


class NativeDevice(LedgerDevice):
    """A ``VkDevice`` with one queue. Closing it closes all buffers, pipelines and command buffers that are open."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.physical = choose(instance().devices, index)
        self.description = self.physical.describe(index)
        family = self._queue_family()
        with reporting(f"cannot open {self.name}"):
            self.handle = self._create(family)
        self.queue = vk.vkGetDeviceQueue(self.handle, family, 0)
        pool = vk.VkCommandPoolCreateInfo(queueFamilyIndex=family)
        self.command_pool = vk.vkCreateCommandPool(self.handle, pool, None)
        self.pipeline_cache = vk.vkCreatePipelineCache(self.handle, vk.VkPipelineCacheCreateInfo(), None)
        self.descriptors = Descriptors(self.handle)
        self.subgroup_size_request = self._subgroup_size_request()

    def _queue_family(self) -> int:
        families = vk.vkGetPhysicalDeviceQueueFamilyProperties(self.physical.handle)
        able = [index for index, family in enumerate(families) if family.queueFlags & vk.VK_QUEUE_COMPUTE_BIT]
        if not able:
            raise BackendError(f"vulkan: {self.name} has no queue for computing")
        self.timestamp_mask = (1 << families[able[0]].timestampValidBits) - 1
        return able[0]

    def _create(self, family: int) -> Any:
        features = self.physical.features
        optional = {PORTABILITY, MEMORY_BUDGET} & self.physical.extensions  # the former must be on where it exists
        queue = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=family, queueCount=1, pQueuePriorities=[1.0])
        create = vk.VkDeviceCreateInfo(
            pNext=features.head,
            pQueueCreateInfos=[queue],
            ppEnabledExtensionNames=[*features.extensions, *sorted(optional)],
        )
        return vk.vkCreateDevice(self.physical.handle, create, None)

    def _subgroup_size_request(self) -> Any:
        """What fixes the subgroup size of pipelines on devices with several, such as Intel's; None without need."""
        sizes = self.physical.sizes
        fixable = sizes.requiredSubgroupSizeStages & vk.VK_SHADER_STAGE_COMPUTE_BIT
        if not fixable or "subgroup_size_control" not in self.features:
            return None
        if sizes.minSubgroupSize == sizes.maxSubgroupSize:
            return None
        request = new_struct("VkPipelineShaderStageRequiredSubgroupSizeCreateInfo")
        request.requiredSubgroupSize = self.subgroup_size
        return request

    @property
    def free_memory_bytes(self) -> int:
        return self.physical.free_memory_bytes(self.allocated_bytes)

    def new_buffer(self, n_bytes: int, *, host: bool = False) -> NativeBuffer:
        return NativeBuffer(self, n_bytes, host)

    def _compile(
        self, spirv: bytes, n_buffers: int, push_bytes: int, constants: Sequence[int], full_subgroups: bool
    ) -> NativePipeline:
        return NativePipeline(self, spirv, n_buffers, push_bytes, constants, full_subgroups)

    def new_command_buffer(self, timestamps: int = 0) -> NativeCommandBuffer:
        return NativeCommandBuffer(self, timestamps)

    def _wait_idle(self) -> None:
        lib.vkDeviceWaitIdle(self.handle)

    def _destroy(self) -> None:
        self.descriptors.close()
        lib.vkDestroyPipelineCache(self.handle, self.pipeline_cache, ffi.NULL)
        lib.vkDestroyCommandPool(self.handle, self.command_pool, ffi.NULL)
        lib.vkDestroyDevice(self.handle, ffi.NULL)


def open_device(index: int) -> NativeDevice:
    return NativeDevice(index)
