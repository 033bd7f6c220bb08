"""Command buffers submitted before they may start: a timeline semaphore that the host signals."""

from __future__ import annotations

from typing import Any

from pumice_vulkan.device.native.api import check, ffi, lib, reporting, vk
from pumice_vulkan.device.native.features import new_struct


class Gate:
    """Holds back one submitted command buffer of a device's queue at a time."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self.held: object = None  # the submitted command buffer that has not started
        timeline = vk.VkSemaphoreTypeCreateInfo(semaphoreType=vk.VK_SEMAPHORE_TYPE_TIMELINE)
        with reporting("cannot make a semaphore"):
            self._semaphore = vk.vkCreateSemaphore(device, vk.VkSemaphoreCreateInfo(pNext=timeline), None)
        self._value = ffi.new("uint64_t *")
        self._semaphores = ffi.new("VkSemaphore[1]", [self._semaphore])
        self._stages = ffi.new("VkPipelineStageFlags[1]", [vk.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT])
        self._values = new_struct("VkTimelineSemaphoreSubmitInfo")
        self._values.waitSemaphoreValueCount, self._values.pWaitSemaphoreValues = 1, self._value
        self._submit = new_struct("VkSubmitInfo")
        self._submit.pNext = ffi.cast("void *", self._values)
        self._submit.waitSemaphoreCount, self._submit.pWaitSemaphores = 1, self._semaphores
        self._submit.pWaitDstStageMask, self._submit.commandBufferCount = self._stages, 1
        self._signal = new_struct("VkSemaphoreSignalInfo")
        self._signal.semaphore = self._semaphore

    def submit(self, queue: Any, held: object, commands: Any, fence: Any) -> int:
        """Submit the ``VkCommandBuffer[1]`` of ``held``, which starts when the gate opens; return Vulkan's result."""
        self.open()
        self._value[0] += 1
        self._submit.pCommandBuffers = commands
        result: int = lib.vkQueueSubmit(queue, 1, self._submit, fence)
        self.held = None if result else held
        return result

    def open(self) -> None:
        """Release the held command buffer, if any."""
        if self.held is not None:
            self.held = None
            self._signal.value = self._value[0]
            check(lib.vkSignalSemaphore(self._device, self._signal), "cannot signal a semaphore")

    def close(self) -> None:
        lib.vkDestroySemaphore(self._device, self._semaphore, ffi.NULL)
