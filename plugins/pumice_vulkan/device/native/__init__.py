"""The driver ``native``: Vulkan itself, through ``ctypes``."""

from pumice_vulkan.device.native.device import open_device
from pumice_vulkan.device.native.instance import list_devices

__all__ = ["list_devices", "open_device"]
