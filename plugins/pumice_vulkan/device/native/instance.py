"""The Vulkan instance, and descriptions of its physical devices."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from pumice.plugin import BackendError
from pumice_vulkan.device.contract import MAX_BUFFER_BYTES, DeviceDescription
from pumice_vulkan.device.driver_ids import DriverId, driver_version
from pumice_vulkan.device.native.api import V1_3, check, lib, listed
from pumice_vulkan.device.native.binding import (
    VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR,
    VK_MEMORY_HEAP_DEVICE_LOCAL_BIT,
    VK_PHYSICAL_DEVICE_TYPE_CPU,
    VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU,
    VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU,
    VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU,
    VK_SHADER_STAGE_COMPUTE_BIT,
    VkApplicationInfo,
    VkExtensionProperties,
    VkInstanceCreateInfo,
    VkPhysicalDeviceDriverProperties,
    VkPhysicalDeviceIDProperties,
    VkPhysicalDeviceMaintenance3Properties,
    VkPhysicalDeviceMaintenance4Properties,
    VkPhysicalDeviceMemoryBudgetPropertiesEXT,
    VkPhysicalDeviceMemoryProperties,
    VkPhysicalDeviceMemoryProperties2,
    VkPhysicalDeviceProperties2,
    VkPhysicalDeviceShaderIntegerDotProductProperties,
    VkPhysicalDeviceSubgroupProperties,
    VkPhysicalDeviceSubgroupSizeControlProperties,
)
from pumice_vulkan.device.native.features import FeatureChain, matrix_shapes, subgroup_features
from pumice_vulkan.quirks import MATRICES, without_quirks

MEMORY_BUDGET = "VK_EXT_memory_budget"
PORTABILITY = "VK_KHR_portability_enumeration"

TYPES = {
    VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: "discrete",
    VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: "integrated",
    VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: "virtual",
    VK_PHYSICAL_DEVICE_TYPE_CPU: "cpu",
}

ORDER = ["discrete", "virtual", "integrated", "other", "cpu"]

DRIVERS = [
    *(DriverId.RADV, DriverId.AMD_OPEN_SOURCE, DriverId.AMD_PROPRIETARY),
    *(DriverId.INTEL_MESA, DriverId.INTEL_WINDOWS, DriverId.NVIDIA, DriverId.NVK),
]
"""Drivers of one GPU, by preference; Dozen, on top of Direct3D, is last."""

VENDORS = {
    0x1002: "AMD",
    0x1010: "Imagination",
    0x106B: "Apple",
    0x10005: "Mesa",
    0x10DE: "NVIDIA",
    0x13B5: "Arm",
    0x14E4: "Broadcom",
    0x1AE0: "Google",
    0x5143: "Qualcomm",
    0x8086: "Intel",
}


class Instance:
    """A connection to the Vulkan loader, and through it to the drivers."""

    def __init__(self) -> None:
        # MoltenVK is not fully conformant, and is listed only on request.
        portability = PORTABILITY in _names(
            listed(
                lambda count, numbered: lib.vkEnumerateInstanceExtensionProperties(None, count, numbered),
                VkExtensionProperties,
                "listing extensions",
            )
        )
        how = VkInstanceCreateInfo(
            flags=VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR if portability else 0,
            pApplicationInfo=VkApplicationInfo(pApplicationName=b"pumice", pEngineName=b"pumice", apiVersion=V1_3),
            enabledExtensionCount=1 if portability else 0,
            ppEnabledExtensionNames=texts([PORTABILITY]) if portability else None,
        )
        handle = ctypes.c_size_t()
        try:
            check(lib.vkCreateInstance(ctypes.byref(how), None, ctypes.byref(handle)), "cannot start Vulkan")
        except BackendError:
            raise BackendError("no Vulkan driver is installed; install the graphics driver of your GPU") from None
        self.handle = handle.value
        self.devices = in_order([device for device in self.physical_devices() if device.has_memory])

    def physical_devices(self) -> list[PhysicalDevice]:
        """Return the devices in the loader's order, also those that only compile shaders and have no memory."""
        return [PhysicalDevice(self.handle, device, index) for index, device in enumerate(self._handles())]

    def _handles(self) -> list[int]:
        count, doing = ctypes.c_uint32(), "cannot list devices"
        check(lib.vkEnumeratePhysicalDevices(self.handle, ctypes.byref(count), None), doing)
        handles = (ctypes.c_size_t * count.value)()
        check(lib.vkEnumeratePhysicalDevices(self.handle, ctypes.byref(count), handles), doing)
        return list(handles[: count.value])


def in_order(devices: Sequence[PhysicalDevice]) -> list[PhysicalDevice]:
    """Sort discrete GPUs first and software last; of the drivers of one GPU, the one that is known to be best is first.

    Else the order is the loader's.
    """
    uuids = [bytes(device.ids.deviceUUID) for device in devices]
    first = {uuid: uuids.index(uuid) for uuid in uuids}

    def key(device: PhysicalDevice) -> tuple[int, int, int]:
        driver = device.driver.driverID
        rank = DRIVERS.index(DriverId(driver)) if driver in DRIVERS else len(DRIVERS)
        return ORDER.index(device.type), first[bytes(device.ids.deviceUUID)], rank

    return sorted(devices, key=key)


@functools.cache
def instance() -> Instance:
    """Return the process's only instance. It is never destroyed, since drivers cannot be reloaded indefinitely."""
    return Instance()


class PhysicalDevice:
    """A device that can be opened; valid as long as its instance."""

    def __init__(self, instance: int, handle: int, loader_index: int) -> None:
        self.handle = handle
        self.loader_index = loader_index
        self._instance = instance
        self.extensions = _names(
            listed(
                lambda count, found: lib.vkEnumerateDeviceExtensionProperties(handle, None, count, found),
                VkExtensionProperties,
                "listing extensions",
            )
        )
        head = VkPhysicalDeviceProperties2()
        self.subgroup = head.chain(VkPhysicalDeviceSubgroupProperties)
        self.maintenance = head.chain(VkPhysicalDeviceMaintenance3Properties)
        self.buffers = head.chain(VkPhysicalDeviceMaintenance4Properties)
        self.sizes = head.chain(VkPhysicalDeviceSubgroupSizeControlProperties)
        self.driver = head.chain(VkPhysicalDeviceDriverProperties)
        self.ids = head.chain(VkPhysicalDeviceIDProperties)
        self.dot = head.chain(VkPhysicalDeviceShaderIntegerDotProductProperties)
        lib.vkGetPhysicalDeviceProperties2(handle, ctypes.byref(head))
        self.properties = head.properties
        self.type = TYPES.get(self.properties.deviceType, "other")
        self.limits = self.properties.limits
        self.api_version = min(self.properties.apiVersion, V1_3)
        self.memory = VkPhysicalDeviceMemoryProperties()
        lib.vkGetPhysicalDeviceMemoryProperties(handle, ctypes.byref(self.memory))
        self.features = FeatureChain(handle, self.api_version, self.extensions)

    def describe(self, index: int) -> DeviceDescription:
        properties, limits = self.properties, self.limits
        version = properties.apiVersion
        most = [limits.maxStorageBufferRange, self.maintenance.maxMemoryAllocationSize, self.buffers.maxBufferSize]
        buffer_bytes = min([MAX_BUFFER_BYTES, *filter(None, most)])  # the last is 0 before Vulkan 1.3
        timestamps = limits.timestampComputeAndGraphics
        description = DeviceDescription(
            index=index,
            loader_index=self.loader_index,
            name=_text(properties.deviceName),
            driver="native",
            vulkan_driver=f"{_text(self.driver.driverName)} {_text(self.driver.driverInfo)}".strip(),
            vendor=VENDORS.get(properties.vendorID, f"{properties.vendorID:#x}"),
            uuid=str(UUID(bytes=bytes(self.ids.deviceUUID))),
            type=self.type,
            api_version=f"{version >> 22 & 0x7F}.{version >> 12 & 0x3FF}.{version & 0xFFF}",
            memory_bytes=self.memory.memoryHeaps[self.main_heap].size,
            subgroup_size=self.subgroup.subgroupSize,
            max_buffer_bytes=buffer_bytes // 16 * 16,
            max_threadgroups=_three(limits.maxComputeWorkGroupCount),
            max_threads_per_threadgroup=limits.maxComputeWorkGroupInvocations,
            threadgroup_memory_bytes=limits.maxComputeSharedMemorySize,
            push_constant_bytes=limits.maxPushConstantsSize,
            timestamp_period_ns=limits.timestampPeriod if timestamps else 0.0,
            features=self._feature_names(),
            max_buffers=limits.maxPerStageDescriptorStorageBuffers,
            subgroup_sizes=self._subgroup_sizes(),
            driver_id=self.driver.driverID,
            driver_version=driver_version(self.driver.driverID, properties.driverVersion),
            cooperative_matrices=(),
        )
        # AMD's driver crashes when it is asked about some devices.
        asks = MATRICES in without_quirks(description).features
        return (
            replace(description, cooperative_matrices=matrix_shapes(self._instance, self.handle))
            if asks
            else description
        )

    @property
    def has_memory(self) -> bool:
        """False for Mesa's drivers without their hardware (RADV_FORCE_FAMILY), which open devices on paper."""
        return self.memory.memoryHeapCount > 0

    @property
    def main_heap(self) -> int:
        """Return the index of the largest device-local memory heap, or of the largest heap without one."""
        heaps = self.memory.memoryHeaps
        local = VK_MEMORY_HEAP_DEVICE_LOCAL_BIT
        return max(range(self.memory.memoryHeapCount), key=lambda i: (heaps[i].flags & local, heaps[i].size))

    def free_memory_bytes(self, allocated_bytes: int) -> int:
        """Return the free bytes of the main heap as reported by the driver; else those not allocated by this device."""
        if MEMORY_BUDGET not in self.extensions:
            return max(0, int(self.memory.memoryHeaps[self.main_heap].size) - allocated_bytes)
        memory = VkPhysicalDeviceMemoryProperties2()
        budget = memory.chain(VkPhysicalDeviceMemoryBudgetPropertiesEXT)
        lib.vkGetPhysicalDeviceMemoryProperties2(self.handle, ctypes.byref(memory))
        return max(0, budget.heapBudget[self.main_heap] - budget.heapUsage[self.main_heap])

    def _feature_names(self) -> frozenset[str]:
        names = self.features.names | subgroup_features(self.subgroup)
        if "integer_dot_product" in names and self.dot.integerDotProduct4x8BitPackedSignedAccelerated:
            names.add("integer_dot_product_fast")
        return frozenset(names)

    def _subgroup_sizes(self) -> tuple[int, int]:
        fixable = self.sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT
        if fixable and "subgroup_size_control" in self.features.names:
            return self.sizes.minSubgroupSize, self.sizes.maxSubgroupSize
        return self.subgroup.subgroupSize, self.subgroup.subgroupSize


def list_devices() -> list[DeviceDescription]:
    return [device.describe(index) for index, device in enumerate(instance().devices)]


def texts(names: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [name.encode() for name in names]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _names(properties: Iterable[VkExtensionProperties]) -> set[str]:
    return {_text(item.extensionName) for item in properties}


def _text(written: bytes) -> str:
    return written.decode("utf-8", "replace")


def _three(numbers: ctypes.Array[ctypes.c_uint32]) -> tuple[int, int, int]:
    x, y, z = numbers
    return x, y, z
