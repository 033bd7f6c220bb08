"""Calls of Vulkan's functions, with errors in one line each."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TypeVar

from pumice.plugin import BackendError
from pumice_vulkan.device.checks import LOST, OUT_OF_MEMORY
from pumice_vulkan.device.native.binding import RESULTS, VK_INCOMPLETE
from pumice_vulkan.device.native.loader import load
from pumice_vulkan.device.native.structure import Pointee, Structure, array

lib = load()

V1_1, V1_2, V1_3, V1_4 = (1 << 22 | minor << 12 for minor in (1, 2, 3, 4))

_REASONS = {
    "VK_ERROR_OUT_OF_HOST_MEMORY": OUT_OF_MEMORY,
    "VK_ERROR_OUT_OF_DEVICE_MEMORY": OUT_OF_MEMORY,
    "VK_ERROR_OUT_OF_POOL_MEMORY": OUT_OF_MEMORY,
    "VK_ERROR_DEVICE_LOST": LOST,
}
S = TypeVar("S", bound=Structure)


def check(result: int, doing: str) -> None:
    """Raise BackendError if a function returned an error."""
    if result < 0:
        name = RESULTS.get(result, f"error {result}")
        raise BackendError(f"vulkan: {doing}: {_REASONS.get(name, name)}")


def created(function: Callable[[int, Pointee, Pointee, Pointee], int], device: int, how: Structure, doing: str) -> int:
    """Return the handle of a new object of a device. Raises BackendError, which names the failed action."""
    handle = ctypes.c_uint64()
    check(function(device, ctypes.byref(how), None, ctypes.byref(handle)), doing)
    return handle.value


def listed(function: Callable[[Pointee, Pointee], int | None], kind: type[S], doing: str) -> list[S]:
    """Return what a function lists, which takes the address of a number and of as many structures."""
    count = ctypes.c_uint32()
    while True:
        check(function(ctypes.byref(count), None) or 0, doing)
        items = array(kind, [kind() for _ in range(count.value)])
        result = function(ctypes.byref(count), items) or 0
        check(result, doing)
        if result != VK_INCOMPLETE:
            return items[: count.value]
