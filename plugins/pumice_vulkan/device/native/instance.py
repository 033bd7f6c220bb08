"""The Vulkan instance, and descriptions of its physical devices."""

from __future__ import annotations

import functools
from typing import Any
from uuid import UUID

from pumice.plugin import BackendError
from pumice_vulkan.device.contract import MAX_BUFFER_BYTES, DeviceDescription
from pumice_vulkan.device.native.api import V1_3, ffi, lib, reporting, text, vk
from pumice_vulkan.device.native.features import FeatureChain, chain, matrix_shapes, new_struct, subgroup_features

MEMORY_BUDGET = "VK_EXT_memory_budget"
PORTABILITY = "VK_KHR_portability_enumeration"

TYPES = {
    vk.VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: "discrete",
    vk.VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: "integrated",
    vk.VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: "virtual",
    vk.VK_PHYSICAL_DEVICE_TYPE_CPU: "cpu",
}

ORDER = ["discrete", "virtual", "integrated", "other", "cpu"]

VENDORS = {
    0x1002: "AMD",
    0x1010: "Imagination",
    0x106B: "Apple",
    0x10005: "Mesa",
    0x10DE: "NVIDIA",
    0x13B5: "Arm",
    0x5143: "Qualcomm",
    0x8086: "Intel",
}


class Instance:
    """A connection to the Vulkan loader, and through it to the drivers."""

    def __init__(self) -> None:
        # MoltenVK is not fully conformant, and is listed only on request.
        portability = PORTABILITY in _names(vk.vkEnumerateInstanceExtensionProperties(None))
        application = vk.VkApplicationInfo(pApplicationName="pumice", pEngineName="pumice", apiVersion=V1_3)
        create = vk.VkInstanceCreateInfo(
            flags=vk.VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR if portability else 0,
            pApplicationInfo=application,
            ppEnabledExtensionNames=[PORTABILITY] if portability else [],
        )
        try:
            with reporting("cannot start Vulkan"):
                self.handle = vk.vkCreateInstance(create, None)
        except BackendError:
            raise BackendError("no Vulkan driver is installed; install the graphics driver of your GPU") from None
        with reporting("cannot list devices"):
            handles = vk.vkEnumeratePhysicalDevices(self.handle)
        devices = [PhysicalDevice(self.handle, handle, index) for index, handle in enumerate(handles)]
        self.devices = sorted(devices, key=lambda device: ORDER.index(device.type))


@functools.cache
def instance() -> Instance:
    """Return the process's only instance. It is never destroyed, since drivers cannot be reloaded indefinitely."""
    return Instance()


class PhysicalDevice:
    """A device that can be opened; valid as long as its instance."""

    def __init__(self, instance: Any, handle: Any, loader_index: int) -> None:
        self.handle = handle
        self.loader_index = loader_index
        self._instance = instance
        self.extensions = _names(vk.vkEnumerateDeviceExtensionProperties(handle, None))
        self.properties = ffi.new("VkPhysicalDeviceProperties2 *")
        self.properties.sType = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2
        self.subgroup = chain(self.properties, "VkPhysicalDeviceSubgroupProperties")
        self.maintenance = chain(self.properties, "VkPhysicalDeviceMaintenance3Properties")
        self.buffers = chain(self.properties, "VkPhysicalDeviceMaintenance4Properties")
        self.sizes = chain(self.properties, "VkPhysicalDeviceSubgroupSizeControlProperties")
        self.driver = chain(self.properties, "VkPhysicalDeviceDriverProperties")
        self.ids = chain(self.properties, "VkPhysicalDeviceIDProperties")
        self.dot = chain(self.properties, "VkPhysicalDeviceShaderIntegerDotProductProperties")
        lib.vkGetPhysicalDeviceProperties2(handle, self.properties)
        self.type = TYPES.get(self.properties.properties.deviceType, "other")
        self.limits = self.properties.properties.limits
        self.api_version = min(self.properties.properties.apiVersion, V1_3)
        self.memory = vk.vkGetPhysicalDeviceMemoryProperties(handle)
        self.features = FeatureChain(handle, self.api_version, self.extensions)

    def describe(self, index: int) -> DeviceDescription:
        properties, limits = self.properties.properties, self.limits
        version = properties.apiVersion
        most = [limits.maxStorageBufferRange, self.maintenance.maxMemoryAllocationSize, self.buffers.maxBufferSize]
        buffer_bytes = min([MAX_BUFFER_BYTES, *filter(None, most)])  # the last is 0 before Vulkan 1.3
        timestamps = limits.timestampComputeAndGraphics
        return DeviceDescription(
            index=index,
            loader_index=self.loader_index,
            name=text(properties.deviceName),
            driver="native",
            vulkan_driver=f"{text(self.driver.driverName)} {text(self.driver.driverInfo)}".strip(),
            vendor=VENDORS.get(properties.vendorID, f"{properties.vendorID:#x}"),
            uuid=str(UUID(bytes=bytes(ffi.buffer(self.ids.deviceUUID)))),
            type=self.type,
            api_version=f"{version >> 22 & 0x7F}.{version >> 12 & 0x3FF}.{version & 0xFFF}",
            memory_bytes=self.memory.memoryHeaps[self.main_heap].size,
            subgroup_size=self.subgroup.subgroupSize,
            max_buffer_bytes=buffer_bytes // 16 * 16,
            max_threadgroups=tuple(limits.maxComputeWorkGroupCount),
            max_threads_per_threadgroup=limits.maxComputeWorkGroupInvocations,
            threadgroup_memory_bytes=limits.maxComputeSharedMemorySize,
            push_constant_bytes=limits.maxPushConstantsSize,
            timestamp_period_ns=limits.timestampPeriod if timestamps else 0.0,
            features=self._feature_names(),
            cooperative_matrices=self._matrix_shapes(),
        )

    @property
    def main_heap(self) -> int:
        """Return the index of the largest device-local memory heap, or of the largest heap without one."""
        heaps = self.memory.memoryHeaps
        local = vk.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT
        return max(range(self.memory.memoryHeapCount), key=lambda i: (heaps[i].flags & local, heaps[i].size))

    def free_memory_bytes(self, allocated_bytes: int) -> int:
        """Return the free bytes of the main heap as reported by the driver; else those not allocated by this device."""
        if MEMORY_BUDGET not in self.extensions:
            return max(0, int(self.memory.memoryHeaps[self.main_heap].size) - allocated_bytes)
        memory = new_struct("VkPhysicalDeviceMemoryProperties2")
        budget = chain(memory, "VkPhysicalDeviceMemoryBudgetPropertiesEXT")
        lib.vkGetPhysicalDeviceMemoryProperties2(self.handle, memory)
        return max(0, budget.heapBudget[self.main_heap] - budget.heapUsage[self.main_heap])

    def _feature_names(self) -> frozenset[str]:
        names = self.features.names | subgroup_features(self.subgroup)
        if "integer_dot_product" in names and self.dot.integerDotProduct4x8BitPackedSignedAccelerated:
            names.add("integer_dot_product_fast")
        return frozenset(names)

    def _matrix_shapes(self) -> tuple[Any, ...]:
        return matrix_shapes(self._instance, self.handle) if "cooperative_matrix" in self.features.names else ()


def list_devices() -> list[DeviceDescription]:
    return [device.describe(index) for index, device in enumerate(instance().devices)]


def _names(properties: Any) -> set[str]:
    return {item.extensionName for item in properties}
