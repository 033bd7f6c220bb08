"""Buffers with their own device memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import BackendError
from pumice_vulkan.device.contract import Buffer
from pumice_vulkan.device.native.api import check, ffi, lib, reporting, vk
from pumice_vulkan.device.native.logical import LogicalDevice

DEVICE_LOCAL = vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
CACHED = vk.VK_MEMORY_PROPERTY_HOST_CACHED_BIT
HOST = vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
USAGE = (
    vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT
)


class NativeBuffer(Buffer):
    """A ``VkBuffer`` and its ``VkDeviceMemory``; a host buffer stays mapped."""

    def __init__(self, device: LogicalDevice, n_bytes: int, host: bool) -> None:
        self.n_bytes = n_bytes
        self.host = host
        self._device = device
        self._memory: Any = None
        self._mapped: NDArray[np.uint8] | None = None
        held = device.ledger.allocated_bytes
        doing = f"cannot allocate {n_bytes} bytes on {device.description.name}, which holds {held} already"
        with reporting(doing):
            self.handle = vk.vkCreateBuffer(device.handle, vk.VkBufferCreateInfo(size=n_bytes, usage=USAGE), None)
        try:
            self._allocate(doing)
        except BaseException:
            self._free()
            raise
        device.ledger.opened(self)

    def _allocate(self, doing: str) -> None:
        device = self._device.handle
        needs = vk.vkGetBufferMemoryRequirements(device, self.handle)
        kind = _memory_type(self._device.physical.memory, needs.memoryTypeBits, self.host)
        allocate = vk.VkMemoryAllocateInfo(allocationSize=needs.size, memoryTypeIndex=kind)
        memory = ffi.new("VkDeviceMemory *")
        check(lib.vkAllocateMemory(device, ffi.addressof(allocate), ffi.NULL, memory), doing)
        self._memory = memory[0]
        check(lib.vkBindBufferMemory(device, self.handle, self._memory, 0), doing)
        if self.host:
            address = ffi.new("void **")
            check(lib.vkMapMemory(device, self._memory, 0, self.n_bytes, 0, address), doing)
            self._mapped = np.frombuffer(ffi.buffer(address[0], self.n_bytes), np.uint8)

    @property
    def contents(self) -> NDArray[np.uint8]:
        if self._mapped is None:
            raise ValueError("the host can only access open buffers created with host=True")
        return self._mapped

    def close(self) -> None:
        if self._device.ledger.closing(self):
            self._mapped = None
            self._free()

    def _free(self) -> None:
        lib.vkDestroyBuffer(self._device.handle, self.handle, ffi.NULL)
        if self._memory is not None:
            lib.vkFreeMemory(self._device.handle, self._memory, ffi.NULL)


def _memory_type(memory: Any, allowed: int, host: bool) -> int:
    """Return the best of the allowed memory types.

    Host memory should be cached: the CPU reads uncached memory, such as device-local memory, tens of times slower.
    Device memory should not be mappable, since the mappable kind may be small.
    """

    def score(index: int) -> tuple[bool, bool, int]:
        flags = memory.memoryTypes[index].propertyFlags
        size = memory.memoryHeaps[memory.memoryTypes[index].heapIndex].size
        if host:
            return bool(flags & CACHED), bool(flags & DEVICE_LOCAL), size
        return bool(flags & DEVICE_LOCAL), not flags & HOST, size

    needed = HOST if host else 0
    usable = [
        index
        for index in range(memory.memoryTypeCount)
        if allowed >> index & 1 and memory.memoryTypes[index].propertyFlags & needed == needed
    ]
    if not usable:
        raise BackendError("vulkan: the device has no suitable memory type")
    return max(usable, key=score)
