"""Buffers with their own device memory."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import BackendError
from pumice_vulkan.device.checks import OUT_OF_MEMORY
from pumice_vulkan.device.contract import Buffer
from pumice_vulkan.device.native.api import check, created, lib
from pumice_vulkan.device.native.binding import (
    VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
    VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
    VK_BUFFER_USAGE_TRANSFER_DST_BIT,
    VK_BUFFER_USAGE_TRANSFER_SRC_BIT,
    VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT,
    VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
    VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
    VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT,
    VkBufferCreateInfo,
    VkBufferDeviceAddressInfo,
    VkMemoryAllocateFlagsInfo,
    VkMemoryAllocateInfo,
    VkMemoryRequirements,
    VkPhysicalDeviceMemoryProperties,
)
from pumice_vulkan.device.native.logical import LogicalDevice

ADDRESSABLE = "buffer_address"  # feature of a device whose buffers have addresses
HOST = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
FAILED = ctypes.c_size_t(-1).value  # address by which lavapipe since Mesa 25 answers where mmap fails, as a success
USAGE = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT


class NativeBuffer(Buffer):
    """A ``VkBuffer`` and its ``VkDeviceMemory``; a host buffer stays mapped."""

    def __init__(self, device: LogicalDevice, n_bytes: int, host: bool) -> None:
        self.n_bytes = n_bytes
        self.host = host
        self._device = device
        self._memory: int | None = None
        self._mapped: NDArray[np.uint8] | None = None
        self._addressable = ADDRESSABLE in device.description.features
        held = device.ledger.allocated_bytes
        doing = f"cannot allocate {n_bytes} bytes on {device.description.name}, which holds {held} already"
        how = VkBufferCreateInfo(
            size=n_bytes, usage=USAGE | (VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT if self._addressable else 0)
        )
        self.handle = created(lib.vkCreateBuffer, device.handle, how, doing)
        try:
            self._allocate(doing)
        except BaseException:
            self._free()
            raise
        device.ledger.opened(self)

    def _allocate(self, doing: str) -> None:
        device = self._device.handle
        needs = VkMemoryRequirements()
        lib.vkGetBufferMemoryRequirements(device, self.handle, ctypes.byref(needs))
        kind = _memory_type(self._device.physical.memory, needs.memoryTypeBits, self.host)
        how = VkMemoryAllocateInfo(allocationSize=needs.size, memoryTypeIndex=kind)
        flags = VkMemoryAllocateFlagsInfo(flags=VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT)
        if self._addressable:
            how.point("pNext", flags)
        self._memory = created(lib.vkAllocateMemory, device, how, doing)
        check(lib.vkBindBufferMemory(device, self.handle, self._memory, 0), doing)
        if self.host:
            address = ctypes.c_size_t()
            check(lib.vkMapMemory(device, self._memory, 0, self.n_bytes, 0, ctypes.byref(address)), doing)
            if address.value == FAILED:
                raise BackendError(f"vulkan: {doing}: {OUT_OF_MEMORY}")
            memory = (ctypes.c_uint8 * self.n_bytes).from_address(address.value)
            self._mapped = np.frombuffer(memoryview(memory), np.uint8)

    @property
    def contents(self) -> NDArray[np.uint8]:
        if self._mapped is None:
            raise ValueError("the host can only access open buffers created with host=True")
        return self._mapped

    @property
    def address(self) -> int:
        if not self._addressable:
            return 0
        address: int = lib.vkGetBufferDeviceAddress(
            self._device.handle, ctypes.byref(VkBufferDeviceAddressInfo(buffer=self.handle))
        )
        return address

    def close(self) -> None:
        if self._device.ledger.closing(self):
            self._mapped = None
            self._free()

    def _free(self) -> None:
        lib.vkDestroyBuffer(self._device.handle, self.handle, None)
        if self._memory is not None:
            lib.vkFreeMemory(self._device.handle, self._memory, None)


def _memory_type(memory: VkPhysicalDeviceMemoryProperties, allowed: int, host: bool) -> int:
    """Return the best of the allowed memory types.

    Host memory should be cached: the CPU reads uncached memory, such as device-local memory, tens of times slower.
    Device memory should not be mappable, since the mappable kind may be small.
    """

    def score(index: int) -> tuple[bool, bool, int]:
        flags = memory.memoryTypes[index].propertyFlags
        size = memory.memoryHeaps[memory.memoryTypes[index].heapIndex].size
        if host:
            return (
                bool(flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT),
                bool(flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT),
                size,
            )
        return bool(flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT), not flags & HOST, size

    needed = HOST if host else 0
    usable = [
        index
        for index in range(memory.memoryTypeCount)
        if allowed >> index & 1 and memory.memoryTypes[index].propertyFlags & needed == needed
    ]
    if not usable:
        raise BackendError("vulkan: the device has no suitable memory type")
    return max(usable, key=score)
