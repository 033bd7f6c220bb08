"""The backend contract: programs, steps, and picking tokens on a device."""

from pumice.backend.contract import Backend, Capabilities, DeviceInfo, KernelTime, NoOptions, Program

__all__ = ["Backend", "Capabilities", "DeviceInfo", "KernelTime", "NoOptions", "Program"]
