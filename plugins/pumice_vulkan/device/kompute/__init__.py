"""The driver ``kompute``: Kompute, through its Python package ``kp``."""

from pumice_vulkan.device.kompute.device import list_devices, open_device

__all__ = ["list_devices", "open_device"]
