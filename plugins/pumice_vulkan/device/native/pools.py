"""Command pools: one per thread, since Vulkan allows one thread at a time to record with a pool."""

from __future__ import annotations

import ctypes
import threading
from collections import deque

from pumice_vulkan.device.native.api import check, created, lib
from pumice_vulkan.device.native.binding import (
    VK_COMMAND_BUFFER_LEVEL_PRIMARY,
    VkCommandBufferAllocateInfo,
    VkCommandPoolCreateInfo,
)


class CommandPool:
    """A ``VkCommandPool`` of the thread that creates it."""

    def __init__(self, device: int, family: int) -> None:
        self._device = device
        self._thread = threading.get_ident()
        self._left: deque[int] = deque()  # command buffers closed by other threads
        how = VkCommandPoolCreateInfo(queueFamilyIndex=family)
        self._handle = created(lib.vkCreateCommandPool, device, how, "cannot make a command pool")

    def new(self) -> int:
        """Allocate a command buffer, in the pool's thread."""
        while self._left:
            self._free(self._left.popleft())
        primary = VK_COMMAND_BUFFER_LEVEL_PRIMARY
        how = VkCommandBufferAllocateInfo(commandPool=self._handle, level=primary, commandBufferCount=1)
        handle = ctypes.c_size_t()
        result = lib.vkAllocateCommandBuffers(self._device, ctypes.byref(how), ctypes.byref(handle))
        check(result, "cannot make a command buffer")
        return handle.value

    def free(self, command: int) -> None:
        """Free a command buffer: at once in the pool's thread, otherwise at the next ``new`` of that thread."""
        if threading.get_ident() == self._thread:
            self._free(command)
        else:
            self._left.append(command)

    def _free(self, command: int) -> None:
        lib.vkFreeCommandBuffers(self._device, self._handle, 1, (ctypes.c_size_t * 1)(command))

    def close(self) -> None:
        """Destroy the pool with all of its command buffers. No thread may use it any more."""
        lib.vkDestroyCommandPool(self._device, self._handle, None)


class CommandPools:
    """The command pools of a device. A thread that reuses the identifier of an ended one also reuses its pool."""

    def __init__(self, device: int, family: int) -> None:
        self._device = device
        self._family = family
        self._pools: dict[int, CommandPool] = {}

    @property
    def own(self) -> CommandPool:
        """Return the pool of the calling thread."""
        pool = self._pools.get(threading.get_ident())
        if pool is None:
            pool = self._pools[threading.get_ident()] = CommandPool(self._device, self._family)
        return pool

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
