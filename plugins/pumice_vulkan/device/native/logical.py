"""The logical device: a ``VkDevice`` with one queue, and what buffers, pipelines and command buffers need of it."""

from __future__ import annotations

from typing import Any

from pumice.plugin import BackendError
from pumice_vulkan.device.ledger import Ledger
from pumice_vulkan.device.native.api import check, ffi, lib, reporting, vk
from pumice_vulkan.device.native.features import new_struct
from pumice_vulkan.device.native.gate import Gate
from pumice_vulkan.device.native.instance import MEMORY_BUDGET, PhysicalDevice

PORTABILITY = "VK_KHR_portability_subset"


class LogicalDevice:
    """A ``VkDevice``, its queue, and the account of what was made with it."""

    def __init__(self, physical: PhysicalDevice, index: int) -> None:
        self.physical = physical
        self.description = physical.describe(index)
        self.ledger = Ledger()
        family = self._queue_family()
        with reporting(f"cannot open {self.description.name}"):
            self.handle = self._create(family)
        self.queue = vk.vkGetDeviceQueue(self.handle, family, 0)
        pool = vk.VkCommandPoolCreateInfo(queueFamilyIndex=family)
        self.command_pool = vk.vkCreateCommandPool(self.handle, pool, None)
        self.pipeline_cache = vk.vkCreatePipelineCache(self.handle, vk.VkPipelineCacheCreateInfo(), None)
        self.fences: list[Any] = []  # that no command buffer has any more: making and freeing them takes long
        self.subgroup_size_request = self._subgroup_size_request()
        self.gate = Gate(self.handle) if "timeline_semaphore" in self.description.features else None

    def new_fence(self) -> Any:
        """One that is not signalled; it comes back to ``fences``."""
        if not self.fences:
            return vk.vkCreateFence(self.handle, vk.VkFenceCreateInfo(), None)
        fence = self.fences.pop()
        check(lib.vkResetFences(self.handle, 1, ffi.new("VkFence[1]", [fence])), "resetting a fence")
        return fence

    def wait_idle(self) -> None:
        self.open_gate()
        lib.vkDeviceWaitIdle(self.handle)

    def open_gate(self) -> None:
        """Let begin what the queue holds back: everything behind it waits, too."""
        if self.gate is not None:
            self.gate.open()

    def close(self) -> None:
        """After all that was made with it is closed."""
        if self.gate is not None:
            self.gate.close()
        for fence in self.fences:
            lib.vkDestroyFence(self.handle, fence, ffi.NULL)
        lib.vkDestroyPipelineCache(self.handle, self.pipeline_cache, ffi.NULL)
        lib.vkDestroyCommandPool(self.handle, self.command_pool, ffi.NULL)
        lib.vkDestroyDevice(self.handle, ffi.NULL)

    def _queue_family(self) -> int:
        families = vk.vkGetPhysicalDeviceQueueFamilyProperties(self.physical.handle)
        able = [index for index, family in enumerate(families) if family.queueFlags & vk.VK_QUEUE_COMPUTE_BIT]
        if not able:
            raise BackendError(f"vulkan: {self.description.name} has no queue for computing")
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
        if not fixable or "subgroup_size_control" not in self.description.features:
            return None
        if sizes.minSubgroupSize == sizes.maxSubgroupSize:
            return None
        request = new_struct("VkPipelineShaderStageRequiredSubgroupSizeCreateInfo")
        request.requiredSubgroupSize = self.description.subgroup_size
        return request
