"""The logical device: a ``VkDevice`` with one queue, and state shared by buffers, pipelines and command buffers."""

from __future__ import annotations

import threading
from typing import Any

from pumice.plugin import BackendError
from pumice_vulkan.device.ledger import Ledger
from pumice_vulkan.device.native.api import check, ffi, lib, reporting, vk
from pumice_vulkan.device.native.features import new_struct
from pumice_vulkan.device.native.gate import Gate
from pumice_vulkan.device.native.instance import MEMORY_BUDGET, PhysicalDevice
from pumice_vulkan.device.native.pipeline_cache import PipelineCache
from pumice_vulkan.device.native.pools import CommandPools

PORTABILITY = "VK_KHR_portability_subset"


class LogicalDevice:
    """A ``VkDevice``, its queue, and a ledger of its objects."""

    def __init__(self, physical: PhysicalDevice, index: int) -> None:
        self.physical = physical
        self.description = physical.describe(index)
        self.ledger = Ledger()
        family = self._queue_family()
        with reporting(f"cannot open {self.description.name}"):
            self.handle = self._create(family)
        self.queue = vk.vkGetDeviceQueue(self.handle, family, 0)
        self.submitting = threading.RLock()  # one thread at a time submits or opens the gate
        self.pools = CommandPools(self.handle, family)
        with reporting("cannot make a pipeline cache"):
            self.pipeline_cache = PipelineCache(self.handle, self.description)
        self.fences: list[Any] = []  # fences of closed command buffers, reused because creating one is slow
        self.subgroup_size_request = self._subgroup_size_request()
        self.gate = Gate(self.handle) if "timeline_semaphore" in self.description.features else None

    def new_fence(self) -> Any:
        """Return an unsignalled fence; append it to ``fences`` after use."""
        try:
            fence = self.fences.pop()
        except IndexError:
            return vk.vkCreateFence(self.handle, vk.VkFenceCreateInfo(), None)
        check(lib.vkResetFences(self.handle, 1, ffi.new("VkFence[1]", [fence])), "resetting a fence")
        return fence

    def wait_idle(self) -> None:
        self.open_gate()
        with self.submitting:
            lib.vkDeviceWaitIdle(self.handle)

    def open_gate(self) -> None:
        """Start the command buffer held in the queue, for which all later ones wait."""
        if self.gate is not None and self.gate.held is not None:
            with self.submitting:
                self.gate.open()

    def close(self) -> None:
        """Close the device, after all of its objects."""
        if self.gate is not None:
            self.gate.close()
        for fence in self.fences:
            lib.vkDestroyFence(self.handle, fence, ffi.NULL)
        self.pipeline_cache.close()
        self.pools.close()
        lib.vkDestroyDevice(self.handle, ffi.NULL)

    def _queue_family(self) -> int:
        families = vk.vkGetPhysicalDeviceQueueFamilyProperties(self.physical.handle)
        able = [index for index, family in enumerate(families) if family.queueFlags & vk.VK_QUEUE_COMPUTE_BIT]
        if not able:
            raise BackendError(f"vulkan: {self.description.name} has no compute queue")
        self.timestamp_mask = (1 << families[able[0]].timestampValidBits) - 1
        return able[0]

    def _create(self, family: int) -> Any:
        features = self.physical.features
        optional = {PORTABILITY, MEMORY_BUDGET} & self.physical.extensions  # the former must be enabled where it exists
        queue = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=family, queueCount=1, pQueuePriorities=[1.0])
        create = vk.VkDeviceCreateInfo(
            pNext=features.head,
            pQueueCreateInfos=[queue],
            ppEnabledExtensionNames=[*features.extensions, *sorted(optional)],
        )
        return vk.vkCreateDevice(self.physical.handle, create, None)

    def _subgroup_size_request(self) -> Any:
        """Return the structure that fixes the subgroup size on devices with several (Intel's); None if unneeded."""
        sizes = self.physical.sizes
        fixable = sizes.requiredSubgroupSizeStages & vk.VK_SHADER_STAGE_COMPUTE_BIT
        if not fixable or "subgroup_size_control" not in self.description.features:
            return None
        if sizes.minSubgroupSize == sizes.maxSubgroupSize:
            return None
        request = new_struct("VkPipelineShaderStageRequiredSubgroupSizeCreateInfo")
        request.requiredSubgroupSize = self.description.subgroup_size
        return request
