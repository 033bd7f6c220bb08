"""The package ``vulkan``, with errors in one line each.

Its Python wrappers check and convert arguments, about 25 microseconds per call. They are used where that is negligible;
recording and submitting call the C functions, as ``lib.vkCmd...``.
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
        "the Vulkan loader is missing; install the graphics driver (Debian: apt install libvulkan1)"
    ) from None

vk: Any = vulkan
lib: Any = vk.lib
ffi: Any = vk.ffi

V1_1, V1_2, V1_3 = (1 << 22 | minor << 12 for minor in (1, 2, 3))


@contextmanager
def reporting(doing: str) -> Iterator[None]:
    """Turn a Vulkan error into a BackendError that names the failed action."""
    try:
        yield
    except (vk.VkErrorOutOfDeviceMemory, vk.VkErrorOutOfHostMemory, vk.VkErrorOutOfPoolMemory):
        raise BackendError(f"vulkan: {doing}: {OUT_OF_MEMORY}") from None
    except vk.VkErrorDeviceLost:
        raise BackendError(f"vulkan: {doing}: {LOST}") from None
    except (vk.VkError, vk.VkException) as error:
        raise BackendError(f"vulkan: {doing}: {type(error).__name__.removeprefix('VkError')}") from None


def check(result: int, doing: str) -> None:
    """Raise BackendError if a C function returned an error."""
    if result < 0:
        with reporting(doing):
            raise vk.exception_codes[result]


def text(value: Any) -> str:
    """Return a ``char[]`` of a structure as text."""
    return value if isinstance(value, str) else ffi.string(value).decode("utf-8", "replace")
