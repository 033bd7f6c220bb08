"""The logical device: a ``VkDevice`` with one queue, and state shared by buffers, pipelines and command buffers."""

from __future__ import annotations

import ctypes
import threading

from pumice.plugin import BackendError
from pumice_vulkan.device.contract import DeviceDescription
from pumice_vulkan.device.ledger import Ledger
from pumice_vulkan.device.native.api import check, created, lib, listed
from pumice_vulkan.device.native.binding import (
    VK_QUEUE_COMPUTE_BIT,
    VkDeviceCreateInfo,
    VkDeviceQueueCreateInfo,
    VkFenceCreateInfo,
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo,
    VkQueueFamilyProperties,
)
from pumice_vulkan.device.native.gate import Gate
from pumice_vulkan.device.native.instance import MEMORY_BUDGET, PhysicalDevice, texts
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
        self.handle = self._create(family)
        self.passed = ctypes.c_void_p(self.handle)  # to functions that convert nothing
        self.queue = ctypes.c_void_p(self._first_queue(family))
        self.submitting = threading.RLock()  # one thread at a time submits or opens the gate
        self.pools = CommandPools(self.handle, family)
        self.pipeline_cache = PipelineCache(self.handle, self.description)
        self.fences: list[int] = []  # fences of closed command buffers, reused because creating one is slow
        self.subgroup_size_request = self._subgroup_size_request()
        self.gate = Gate(self.handle, self.passed) if "timeline_semaphore" in self.description.features else None

    def limit(self, description: DeviceDescription) -> None:
        """Restrict the device to the extensions and features of a description."""
        self.description = description
        self.subgroup_size_request = self._subgroup_size_request()
        if self.gate is not None and "timeline_semaphore" not in description.features:
            self.gate.close()
            self.gate = None

    def new_fence(self) -> int:
        """Return an unsignalled fence; append it to ``fences`` after use."""
        try:
            fence = self.fences.pop()
        except IndexError:
            return created(lib.vkCreateFence, self.handle, VkFenceCreateInfo(), "cannot make a fence")
        check(lib.vkResetFences(self.passed, 1, ctypes.byref(ctypes.c_uint64(fence))), "resetting a fence")
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
            lib.vkDestroyFence(self.handle, fence, None)
        self.pipeline_cache.close()
        self.pools.close()
        self._destroy()

    def _destroy(self) -> None:
        lib.vkDestroyDevice(self.handle, None)

    def _queue_family(self) -> int:
        physical = self.physical.handle
        families = listed(
            lambda count, found: lib.vkGetPhysicalDeviceQueueFamilyProperties(physical, count, found),
            VkQueueFamilyProperties,
            "listing queues",
        )
        able = [index for index, family in enumerate(families) if family.queueFlags & VK_QUEUE_COMPUTE_BIT]
        if not able:
            raise BackendError(f"vulkan: {self.description.name} has no compute queue")
        self.timestamp_mask = (1 << families[able[0]].timestampValidBits) - 1
        return able[0]

    def _create(self, family: int) -> int:
        features = self.physical.features
        optional = {PORTABILITY, MEMORY_BUDGET} & self.physical.extensions  # the former must be enabled where it exists
        extensions = [*features.extensions, *sorted(optional)]
        priorities = (ctypes.c_float * 1)(1.0)
        how = VkDeviceCreateInfo(
            pNext=features.head,
            queueCreateInfoCount=1,
            pQueueCreateInfos=VkDeviceQueueCreateInfo(
                queueFamilyIndex=family, queueCount=1, pQueuePriorities=priorities
            ),
            enabledExtensionCount=len(extensions),
            ppEnabledExtensionNames=texts(extensions),
        )
        handle = ctypes.c_size_t()
        result = lib.vkCreateDevice(self.physical.handle, ctypes.byref(how), None, ctypes.byref(handle))
        check(result, f"cannot open {self.description.name}")
        return handle.value

    def _first_queue(self, family: int) -> int:
        queue = ctypes.c_size_t()
        lib.vkGetDeviceQueue(self.handle, family, 0, ctypes.byref(queue))
        return queue.value

    def _subgroup_size_request(self) -> VkPipelineShaderStageRequiredSubgroupSizeCreateInfo | None:
        """Return the structure that fixes the subgroup size on devices with several (Intel's); None if unneeded."""
        least, most = self.description.subgroup_sizes
        if least == most:
            return None
        size = self.description.subgroup_size
        return VkPipelineShaderStageRequiredSubgroupSizeCreateInfo(requiredSubgroupSize=size)
