"""Command buffers submitted before they may start: a timeline semaphore that the host signals."""

from __future__ import annotations

import ctypes

from pumice_vulkan.device.native.api import check, created, lib
from pumice_vulkan.device.native.binding import (
    VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
    VK_SEMAPHORE_TYPE_TIMELINE,
    VkSemaphoreCreateInfo,
    VkSemaphoreSignalInfo,
    VkSemaphoreTypeCreateInfo,
    VkSubmitInfo,
    VkTimelineSemaphoreSubmitInfo,
)
from pumice_vulkan.device.native.structure import Pointee


class Gate:
    """Holds back one submitted command buffer of a device's queue at a time."""

    def __init__(self, device: int, passed: ctypes.c_void_p) -> None:
        self._device, self._passed = device, passed
        self.held: object = None  # the submitted command buffer that has not started
        timeline = VkSemaphoreTypeCreateInfo(semaphoreType=VK_SEMAPHORE_TYPE_TIMELINE)
        how = VkSemaphoreCreateInfo(pNext=timeline)
        self._semaphore = created(lib.vkCreateSemaphore, device, how, "cannot make a semaphore")
        self._value = (ctypes.c_uint64 * 1)()
        self._submit = VkSubmitInfo(
            pNext=VkTimelineSemaphoreSubmitInfo(waitSemaphoreValueCount=1, pWaitSemaphoreValues=self._value),
            waitSemaphoreCount=1,
            pWaitSemaphores=(ctypes.c_uint64 * 1)(self._semaphore),
            pWaitDstStageMask=(ctypes.c_uint32 * 1)(VK_PIPELINE_STAGE_ALL_COMMANDS_BIT),
            commandBufferCount=1,
        )
        self._signal = VkSemaphoreSignalInfo(semaphore=self._semaphore)

    def submit(self, queue: ctypes.c_void_p, held: object, commands: Pointee, fence: ctypes.c_uint64) -> int:
        """Submit the ``VkCommandBuffer[1]`` of ``held``, which starts when the gate opens; return Vulkan's result."""
        self.open()
        self._value[0] += 1
        self._submit.point("pCommandBuffers", commands)
        result = lib.vkQueueSubmit(queue, 1, ctypes.byref(self._submit), fence)
        self.held = None if result else held
        return result

    def open(self) -> None:
        """Release the held command buffer, if any."""
        if self.held is not None:
            self.held = None
            self._signal.value = self._value[0]
            check(lib.vkSignalSemaphore(self._passed, ctypes.byref(self._signal)), "cannot signal a semaphore")

    def close(self) -> None:
        lib.vkDestroySemaphore(self._device, self._semaphore, None)
