"""The Vulkan backend: GPUs of any vendor, through command buffers that are recorded once and replayed."""

from __future__ import annotations

from collections.abc import Callable

from pumice.plugin import hookimpl
from pumice.plugin.unstable import Backend
from pumice_vulkan.backend import VulkanBackend

__all__ = ["VulkanBackend"]


@hookimpl
def pumice_register_backends(register: Callable[[str, type[Backend]], None]) -> None:
    register("vulkan", VulkanBackend)
