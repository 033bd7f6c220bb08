"""The package ``vulkan``, with its errors as one line each.

Its Python wrappers check and convert their arguments, about 25 microseconds a call. They are used where that does not
matter; recording and submitting call the C functions, as ``lib.vkCmd...``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pumice.plugin import BackendError
from pumice_vulkan.device.checks import LOST, OUT_OF_MEMORY

try:
    import vulkan
except OSError:
    raise BackendError(
        "the Vulkan loader is missing; install it with the graphics driver (Debian: apt install libvulkan1)"
    ) from None

vk: Any = vulkan
lib: Any = vk.lib
ffi: Any = vk.ffi

V1_1, V1_2, V1_3 = (1 << 22 | minor << 12 for minor in (1, 2, 3))


@contextmanager
def reporting(doing: str) -> Iterator[None]:
    """Turn an error of Vulkan into a BackendError that says what could not be done."""
    try:
        yield
    except (vk.VkErrorOutOfDeviceMemory, vk.VkErrorOutOfHostMemory, vk.VkErrorOutOfPoolMemory):
        raise BackendError(f"vulkan: {doing}: {OUT_OF_MEMORY}") from None
    except vk.VkErrorDeviceLost:
        raise BackendError(f"vulkan: {doing}: {LOST}") from None
    except (vk.VkError, vk.VkException) as error:
        raise BackendError(f"vulkan: {doing}: {type(error).__name__.removeprefix('VkError')}") from None


def check(result: int, doing: str) -> None:
    """Raise BackendError for the result of a C function that failed."""
    if result < 0:
        with reporting(doing):
            raise vk.exception_codes[result]


def text(value: Any) -> str:
    """A ``char[]`` of a structure."""
    return value if isinstance(value, str) else ffi.string(value).decode("utf-8", "replace")
