"""Vulkan drivers by the identifier that Khronos gives each (``VkDriverId``), and how they write their versions."""

from __future__ import annotations

from enum import IntEnum


class DriverId(IntEnum):
    """Drivers that quirks and profiles name; others are numbers here, too."""

    UNKNOWN = 0
    AMD_PROPRIETARY = 1
    AMD_OPEN_SOURCE = 2
    RADV = 3
    NVIDIA = 4
    INTEL_WINDOWS = 5
    INTEL_MESA = 6
    QUALCOMM = 8
    ARM = 9
    SWIFTSHADER = 10
    LLVMPIPE = 13
    MOLTENVK = 14
    TURNIP = 18
    V3DV = 19
    PANVK = 20
    DOZEN = 23
    NVK = 24
    HONEYKRISP = 26

    @property
    def title(self) -> str:
        """The name of the driver in messages and tables."""
        return _TITLES.get(self, self.name)


_TITLES = {
    DriverId.AMD_PROPRIETARY: "AMD's own",
    DriverId.AMD_OPEN_SOURCE: "AMDVLK",
    DriverId.INTEL_WINDOWS: "Intel's for Windows",
    DriverId.INTEL_MESA: "Intel's of Mesa",
    DriverId.LLVMPIPE: "lavapipe",
    DriverId.MOLTENVK: "MoltenVK",
    DriverId.HONEYKRISP: "Honeykrisp",
}


def driver_version(driver: int, packed: int) -> tuple[int, ...]:
    """Return ``driverVersion`` as its vendor writes it: NVIDIA 550.54.14, Intel on Windows 101.8509, Mesa 25.0.7.

    Sources: Vulkan-Tools' vulkaninfo (NVIDIA, Intel), MoltenVK's ``MVK_VERSION``; all others use Vulkan's own packing.
    """
    if driver == DriverId.NVIDIA:
        return packed >> 22, packed >> 14 & 0xFF, packed >> 6 & 0xFF, packed & 0x3F
    if driver == DriverId.INTEL_WINDOWS:
        return packed >> 14, packed & 0x3FFF
    if driver == DriverId.MOLTENVK:
        return packed // 10_000, packed // 100 % 100, packed % 100
    return packed >> 22, packed >> 12 & 0x3FF, packed & 0xFFF
