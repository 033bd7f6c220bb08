"""Vulkan 1.4.309, from Khronos' registry; written by tools/vulkan_binding.py."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import Array, c_char, c_char_p, c_float, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING

from pumice_vulkan.device.native.structure import Passed, Pointee, Structure

VK_ACCESS_HOST_READ_BIT = 8192
VK_ACCESS_HOST_WRITE_BIT = 16384
VK_ACCESS_SHADER_READ_BIT = 32
VK_ACCESS_SHADER_WRITE_BIT = 64
VK_ACCESS_TRANSFER_READ_BIT = 2048
VK_ACCESS_TRANSFER_WRITE_BIT = 4096
VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT = 131072
VK_BUFFER_USAGE_STORAGE_BUFFER_BIT = 32
VK_BUFFER_USAGE_TRANSFER_DST_BIT = 2
VK_BUFFER_USAGE_TRANSFER_SRC_BIT = 1
VK_COMMAND_BUFFER_LEVEL_PRIMARY = 0
VK_DESCRIPTOR_TYPE_STORAGE_BUFFER = 7
VK_ERROR_DEVICE_LOST = -4
VK_ERROR_OUT_OF_DEVICE_MEMORY = -2
VK_ERROR_OUT_OF_HOST_MEMORY = -1
VK_ERROR_OUT_OF_POOL_MEMORY = -1000069000
VK_INCOMPLETE = 5
VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR = 1
VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT = 2
VK_MEMORY_HEAP_DEVICE_LOCAL_BIT = 1
VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT = 1
VK_MEMORY_PROPERTY_HOST_CACHED_BIT = 8
VK_MEMORY_PROPERTY_HOST_COHERENT_BIT = 4
VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT = 2
VK_NOT_READY = 1
VK_PHYSICAL_DEVICE_TYPE_CPU = 4
VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU = 2
VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU = 1
VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU = 3
VK_PIPELINE_BIND_POINT_COMPUTE = 1
VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT = 2
VK_PIPELINE_STAGE_ALL_COMMANDS_BIT = 65536
VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT = 8192
VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT = 2048
VK_PIPELINE_STAGE_HOST_BIT = 16384
VK_PIPELINE_STAGE_TRANSFER_BIT = 4096
VK_QUERY_RESULT_64_BIT = 1
VK_QUERY_TYPE_TIMESTAMP = 2
VK_QUEUE_COMPUTE_BIT = 2
VK_SCOPE_SUBGROUP_KHR = 3
VK_SEMAPHORE_TYPE_TIMELINE = 1
VK_SHADER_STAGE_COMPUTE_BIT = 32
VK_SUBGROUP_FEATURE_ARITHMETIC_BIT = 4
VK_SUBGROUP_FEATURE_BALLOT_BIT = 8
VK_SUBGROUP_FEATURE_CLUSTERED_BIT = 64
VK_SUBGROUP_FEATURE_SHUFFLE_BIT = 16
VK_SUBGROUP_FEATURE_SHUFFLE_RELATIVE_BIT = 32
VK_SUBGROUP_FEATURE_VOTE_BIT = 2

RESULTS = {
    -1: "VK_ERROR_OUT_OF_HOST_MEMORY",
    -2: "VK_ERROR_OUT_OF_DEVICE_MEMORY",
    -3: "VK_ERROR_INITIALIZATION_FAILED",
    -4: "VK_ERROR_DEVICE_LOST",
    -5: "VK_ERROR_MEMORY_MAP_FAILED",
    -6: "VK_ERROR_LAYER_NOT_PRESENT",
    -7: "VK_ERROR_EXTENSION_NOT_PRESENT",
    -8: "VK_ERROR_FEATURE_NOT_PRESENT",
    -9: "VK_ERROR_INCOMPATIBLE_DRIVER",
    -10: "VK_ERROR_TOO_MANY_OBJECTS",
    -11: "VK_ERROR_FORMAT_NOT_SUPPORTED",
    -12: "VK_ERROR_FRAGMENTED_POOL",
    -13: "VK_ERROR_UNKNOWN",
    -1000011001: "VK_ERROR_VALIDATION_FAILED",
    -1000069000: "VK_ERROR_OUT_OF_POOL_MEMORY",
    -1000072003: "VK_ERROR_INVALID_EXTERNAL_HANDLE",
    -1000161000: "VK_ERROR_FRAGMENTATION",
    -1000174001: "VK_ERROR_NOT_PERMITTED",
    -1000257000: "VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS",
    -1000298000: "VK_ERROR_INVALID_PIPELINE_CACHE_DATA",
    -1000298001: "VK_ERROR_NO_PIPELINE_MATCH",
}
"""Names of errors, by the code that functions return."""


class VkApplicationInfo(Structure):
    TYPE = 0
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("pApplicationName", c_char_p),
        ("applicationVersion", c_uint32),
        ("pEngineName", c_char_p),
        ("engineVersion", c_uint32),
        ("apiVersion", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        pApplicationName: bytes | None = None
        applicationVersion: int = 0
        pEngineName: bytes | None = None
        engineVersion: int = 0
        apiVersion: int = 0


class VkBufferCopy(Structure):
    _fields_ = (
        ("srcOffset", c_uint64),
        ("dstOffset", c_uint64),
        ("size", c_uint64),
    )
    if TYPE_CHECKING:
        srcOffset: int = 0
        dstOffset: int = 0
        size: int = 0


class VkBufferCreateInfo(Structure):
    TYPE = 12
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("size", c_uint64),
        ("usage", c_uint32),
        ("sharingMode", c_int32),
        ("queueFamilyIndexCount", c_uint32),
        ("pQueueFamilyIndices", c_void_p),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0
        size: int = 0
        usage: int = 0
        sharingMode: int = 0
        queueFamilyIndexCount: int = 0
        pQueueFamilyIndices: Pointee = None


class VkBufferDeviceAddressInfo(Structure):
    TYPE = 1000244001
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("buffer", c_uint64),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        buffer: int = 0


class VkCommandBufferAllocateInfo(Structure):
    TYPE = 40
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("commandPool", c_uint64),
        ("level", c_int32),
        ("commandBufferCount", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        commandPool: int = 0
        level: int = 0
        commandBufferCount: int = 0


class VkCommandBufferBeginInfo(Structure):
    TYPE = 42
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("pInheritanceInfo", c_void_p),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0
        pInheritanceInfo: Pointee = None


class VkCommandPoolCreateInfo(Structure):
    TYPE = 39
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("queueFamilyIndex", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0
        queueFamilyIndex: int = 0


class VkPipelineShaderStageCreateInfo(Structure):
    TYPE = 18
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("stage", c_int32),
        ("module", c_uint64),
        ("pName", c_char_p),
        ("pSpecializationInfo", c_void_p),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0
        stage: int = 0
        module: int = 0
        pName: bytes | None = None
        pSpecializationInfo: Pointee = None


class VkComputePipelineCreateInfo(Structure):
    TYPE = 29
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("stage", VkPipelineShaderStageCreateInfo),
        ("layout", c_uint64),
        ("basePipelineHandle", c_uint64),
        ("basePipelineIndex", c_int32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0
        stage: VkPipelineShaderStageCreateInfo = VkPipelineShaderStageCreateInfo()
        layout: int = 0
        basePipelineHandle: int = 0
        basePipelineIndex: int = 0


class VkCooperativeMatrixPropertiesKHR(Structure):
    TYPE = 1000506001
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("MSize", c_uint32),
        ("NSize", c_uint32),
        ("KSize", c_uint32),
        ("AType", c_int32),
        ("BType", c_int32),
        ("CType", c_int32),
        ("ResultType", c_int32),
        ("saturatingAccumulation", c_uint32),
        ("scope", c_int32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        MSize: int = 0
        NSize: int = 0
        KSize: int = 0
        AType: int = 0
        BType: int = 0
        CType: int = 0
        ResultType: int = 0
        saturatingAccumulation: int = 0
        scope: int = 0


class VkDescriptorBufferInfo(Structure):
    _fields_ = (
        ("buffer", c_uint64),
        ("offset", c_uint64),
        ("range", c_uint64),
    )
    if TYPE_CHECKING:
        buffer: int = 0
        offset: int = 0
        range: int = 0


class VkDescriptorPoolCreateInfo(Structure):
    TYPE = 33
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("maxSets", c_uint32),
        ("poolSizeCount", c_uint32),
        ("pPoolSizes", c_void_p),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0
        maxSets: int = 0
        poolSizeCount: int = 0
        pPoolSizes: Pointee = None


class VkDescriptorPoolSize(Structure):
    _fields_ = (
        ("type", c_int32),
        ("descriptorCount", c_uint32),
    )
    if TYPE_CHECKING:
        type: int = 0
        descriptorCount: int = 0


class VkDescriptorSetAllocateInfo(Structure):
    TYPE = 34
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("descriptorPool", c_uint64),
        ("descriptorSetCount", c_uint32),
        ("pSetLayouts", c_void_p),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        descriptorPool: int = 0
        descriptorSetCount: int = 0
        pSetLayouts: Pointee = None


class VkDescriptorSetLayoutBinding(Structure):
    _fields_ = (
        ("binding", c_uint32),
        ("descriptorType", c_int32),
        ("descriptorCount", c_uint32),
        ("stageFlags", c_uint32),
        ("pImmutableSamplers", c_void_p),
    )
    if TYPE_CHECKING:
        binding: int = 0
        descriptorType: int = 0
        descriptorCount: int = 0
        stageFlags: int = 0
        pImmutableSamplers: Pointee = None


class VkDescriptorSetLayoutCreateInfo(Structure):
    TYPE = 32
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("bindingCount", c_uint32),
        ("pBindings", c_void_p),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0
        bindingCount: int = 0
        pBindings: Pointee = None


class VkDeviceCreateInfo(Structure):
    TYPE = 3
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("queueCreateInfoCount", c_uint32),
        ("pQueueCreateInfos", c_void_p),
        ("enabledLayerCount", c_uint32),
        ("ppEnabledLayerNames", c_void_p),
        ("enabledExtensionCount", c_uint32),
        ("ppEnabledExtensionNames", c_void_p),
        ("pEnabledFeatures", c_void_p),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0
        queueCreateInfoCount: int = 0
        pQueueCreateInfos: Pointee = None
        enabledLayerCount: int = 0
        ppEnabledLayerNames: Pointee = None
        enabledExtensionCount: int = 0
        ppEnabledExtensionNames: Pointee = None
        pEnabledFeatures: Pointee = None


class VkDeviceQueueCreateInfo(Structure):
    TYPE = 2
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("queueFamilyIndex", c_uint32),
        ("queueCount", c_uint32),
        ("pQueuePriorities", c_void_p),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0
        queueFamilyIndex: int = 0
        queueCount: int = 0
        pQueuePriorities: Pointee = None


class VkExtensionProperties(Structure):
    _fields_ = (
        ("extensionName", c_char * 256),
        ("specVersion", c_uint32),
    )
    if TYPE_CHECKING:
        extensionName: bytes = b""
        specVersion: int = 0


class VkFenceCreateInfo(Structure):
    TYPE = 8
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0


class VkInstanceCreateInfo(Structure):
    TYPE = 1
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("pApplicationInfo", c_void_p),
        ("enabledLayerCount", c_uint32),
        ("ppEnabledLayerNames", c_void_p),
        ("enabledExtensionCount", c_uint32),
        ("ppEnabledExtensionNames", c_void_p),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0
        pApplicationInfo: Pointee = None
        enabledLayerCount: int = 0
        ppEnabledLayerNames: Pointee = None
        enabledExtensionCount: int = 0
        ppEnabledExtensionNames: Pointee = None


class VkMemoryAllocateFlagsInfo(Structure):
    TYPE = 1000060000
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("deviceMask", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0
        deviceMask: int = 0


class VkMemoryAllocateInfo(Structure):
    TYPE = 5
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("allocationSize", c_uint64),
        ("memoryTypeIndex", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        allocationSize: int = 0
        memoryTypeIndex: int = 0


class VkMemoryBarrier(Structure):
    TYPE = 46
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("srcAccessMask", c_uint32),
        ("dstAccessMask", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        srcAccessMask: int = 0
        dstAccessMask: int = 0


class VkMemoryRequirements(Structure):
    _fields_ = (
        ("size", c_uint64),
        ("alignment", c_uint64),
        ("memoryTypeBits", c_uint32),
    )
    if TYPE_CHECKING:
        size: int = 0
        alignment: int = 0
        memoryTypeBits: int = 0


class VkPhysicalDevice16BitStorageFeatures(Structure):
    TYPE = 1000083000
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("storageBuffer16BitAccess", c_uint32),
        ("uniformAndStorageBuffer16BitAccess", c_uint32),
        ("storagePushConstant16", c_uint32),
        ("storageInputOutput16", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        storageBuffer16BitAccess: int = 0
        uniformAndStorageBuffer16BitAccess: int = 0
        storagePushConstant16: int = 0
        storageInputOutput16: int = 0


class VkPhysicalDevice8BitStorageFeatures(Structure):
    TYPE = 1000177000
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("storageBuffer8BitAccess", c_uint32),
        ("uniformAndStorageBuffer8BitAccess", c_uint32),
        ("storagePushConstant8", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        storageBuffer8BitAccess: int = 0
        uniformAndStorageBuffer8BitAccess: int = 0
        storagePushConstant8: int = 0


class VkPhysicalDeviceBufferDeviceAddressFeatures(Structure):
    TYPE = 1000257000
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("bufferDeviceAddress", c_uint32),
        ("bufferDeviceAddressCaptureReplay", c_uint32),
        ("bufferDeviceAddressMultiDevice", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        bufferDeviceAddress: int = 0
        bufferDeviceAddressCaptureReplay: int = 0
        bufferDeviceAddressMultiDevice: int = 0


class VkPhysicalDeviceCooperativeMatrixFeaturesKHR(Structure):
    TYPE = 1000506000
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("cooperativeMatrix", c_uint32),
        ("cooperativeMatrixRobustBufferAccess", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        cooperativeMatrix: int = 0
        cooperativeMatrixRobustBufferAccess: int = 0


class VkConformanceVersion(Structure):
    _fields_ = (
        ("major", c_uint8),
        ("minor", c_uint8),
        ("subminor", c_uint8),
        ("patch", c_uint8),
    )
    if TYPE_CHECKING:
        major: int = 0
        minor: int = 0
        subminor: int = 0
        patch: int = 0


class VkPhysicalDeviceDriverProperties(Structure):
    TYPE = 1000196000
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("driverID", c_int32),
        ("driverName", c_char * 256),
        ("driverInfo", c_char * 256),
        ("conformanceVersion", VkConformanceVersion),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        driverID: int = 0
        driverName: bytes = b""
        driverInfo: bytes = b""
        conformanceVersion: VkConformanceVersion = VkConformanceVersion()


class VkPhysicalDeviceFeatures(Structure):
    _fields_ = (
        ("robustBufferAccess", c_uint32),
        ("fullDrawIndexUint32", c_uint32),
        ("imageCubeArray", c_uint32),
        ("independentBlend", c_uint32),
        ("geometryShader", c_uint32),
        ("tessellationShader", c_uint32),
        ("sampleRateShading", c_uint32),
        ("dualSrcBlend", c_uint32),
        ("logicOp", c_uint32),
        ("multiDrawIndirect", c_uint32),
        ("drawIndirectFirstInstance", c_uint32),
        ("depthClamp", c_uint32),
        ("depthBiasClamp", c_uint32),
        ("fillModeNonSolid", c_uint32),
        ("depthBounds", c_uint32),
        ("wideLines", c_uint32),
        ("largePoints", c_uint32),
        ("alphaToOne", c_uint32),
        ("multiViewport", c_uint32),
        ("samplerAnisotropy", c_uint32),
        ("textureCompressionETC2", c_uint32),
        ("textureCompressionASTC_LDR", c_uint32),
        ("textureCompressionBC", c_uint32),
        ("occlusionQueryPrecise", c_uint32),
        ("pipelineStatisticsQuery", c_uint32),
        ("vertexPipelineStoresAndAtomics", c_uint32),
        ("fragmentStoresAndAtomics", c_uint32),
        ("shaderTessellationAndGeometryPointSize", c_uint32),
        ("shaderImageGatherExtended", c_uint32),
        ("shaderStorageImageExtendedFormats", c_uint32),
        ("shaderStorageImageMultisample", c_uint32),
        ("shaderStorageImageReadWithoutFormat", c_uint32),
        ("shaderStorageImageWriteWithoutFormat", c_uint32),
        ("shaderUniformBufferArrayDynamicIndexing", c_uint32),
        ("shaderSampledImageArrayDynamicIndexing", c_uint32),
        ("shaderStorageBufferArrayDynamicIndexing", c_uint32),
        ("shaderStorageImageArrayDynamicIndexing", c_uint32),
        ("shaderClipDistance", c_uint32),
        ("shaderCullDistance", c_uint32),
        ("shaderFloat64", c_uint32),
        ("shaderInt64", c_uint32),
        ("shaderInt16", c_uint32),
        ("shaderResourceResidency", c_uint32),
        ("shaderResourceMinLod", c_uint32),
        ("sparseBinding", c_uint32),
        ("sparseResidencyBuffer", c_uint32),
        ("sparseResidencyImage2D", c_uint32),
        ("sparseResidencyImage3D", c_uint32),
        ("sparseResidency2Samples", c_uint32),
        ("sparseResidency4Samples", c_uint32),
        ("sparseResidency8Samples", c_uint32),
        ("sparseResidency16Samples", c_uint32),
        ("sparseResidencyAliased", c_uint32),
        ("variableMultisampleRate", c_uint32),
        ("inheritedQueries", c_uint32),
    )
    if TYPE_CHECKING:
        robustBufferAccess: int = 0
        fullDrawIndexUint32: int = 0
        imageCubeArray: int = 0
        independentBlend: int = 0
        geometryShader: int = 0
        tessellationShader: int = 0
        sampleRateShading: int = 0
        dualSrcBlend: int = 0
        logicOp: int = 0
        multiDrawIndirect: int = 0
        drawIndirectFirstInstance: int = 0
        depthClamp: int = 0
        depthBiasClamp: int = 0
        fillModeNonSolid: int = 0
        depthBounds: int = 0
        wideLines: int = 0
        largePoints: int = 0
        alphaToOne: int = 0
        multiViewport: int = 0
        samplerAnisotropy: int = 0
        textureCompressionETC2: int = 0
        textureCompressionASTC_LDR: int = 0
        textureCompressionBC: int = 0
        occlusionQueryPrecise: int = 0
        pipelineStatisticsQuery: int = 0
        vertexPipelineStoresAndAtomics: int = 0
        fragmentStoresAndAtomics: int = 0
        shaderTessellationAndGeometryPointSize: int = 0
        shaderImageGatherExtended: int = 0
        shaderStorageImageExtendedFormats: int = 0
        shaderStorageImageMultisample: int = 0
        shaderStorageImageReadWithoutFormat: int = 0
        shaderStorageImageWriteWithoutFormat: int = 0
        shaderUniformBufferArrayDynamicIndexing: int = 0
        shaderSampledImageArrayDynamicIndexing: int = 0
        shaderStorageBufferArrayDynamicIndexing: int = 0
        shaderStorageImageArrayDynamicIndexing: int = 0
        shaderClipDistance: int = 0
        shaderCullDistance: int = 0
        shaderFloat64: int = 0
        shaderInt64: int = 0
        shaderInt16: int = 0
        shaderResourceResidency: int = 0
        shaderResourceMinLod: int = 0
        sparseBinding: int = 0
        sparseResidencyBuffer: int = 0
        sparseResidencyImage2D: int = 0
        sparseResidencyImage3D: int = 0
        sparseResidency2Samples: int = 0
        sparseResidency4Samples: int = 0
        sparseResidency8Samples: int = 0
        sparseResidency16Samples: int = 0
        sparseResidencyAliased: int = 0
        variableMultisampleRate: int = 0
        inheritedQueries: int = 0


class VkPhysicalDeviceFeatures2(Structure):
    TYPE = 1000059000
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("features", VkPhysicalDeviceFeatures),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        features: VkPhysicalDeviceFeatures = VkPhysicalDeviceFeatures()


class VkPhysicalDeviceIDProperties(Structure):
    TYPE = 1000071004
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("deviceUUID", c_uint8 * 16),
        ("driverUUID", c_uint8 * 16),
        ("deviceLUID", c_uint8 * 8),
        ("deviceNodeMask", c_uint32),
        ("deviceLUIDValid", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        deviceUUID: Array[c_uint8] = (c_uint8 * 16)()
        driverUUID: Array[c_uint8] = (c_uint8 * 16)()
        deviceLUID: Array[c_uint8] = (c_uint8 * 8)()
        deviceNodeMask: int = 0
        deviceLUIDValid: int = 0


class VkPhysicalDeviceMaintenance3Properties(Structure):
    TYPE = 1000168000
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("maxPerSetDescriptors", c_uint32),
        ("maxMemoryAllocationSize", c_uint64),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        maxPerSetDescriptors: int = 0
        maxMemoryAllocationSize: int = 0


class VkPhysicalDeviceMaintenance4Properties(Structure):
    TYPE = 1000413001
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("maxBufferSize", c_uint64),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        maxBufferSize: int = 0


class VkPhysicalDeviceMemoryBudgetPropertiesEXT(Structure):
    TYPE = 1000237000
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("heapBudget", c_uint64 * 16),
        ("heapUsage", c_uint64 * 16),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        heapBudget: Array[c_uint64] = (c_uint64 * 16)()
        heapUsage: Array[c_uint64] = (c_uint64 * 16)()


class VkMemoryType(Structure):
    _fields_ = (
        ("propertyFlags", c_uint32),
        ("heapIndex", c_uint32),
    )
    if TYPE_CHECKING:
        propertyFlags: int = 0
        heapIndex: int = 0


class VkMemoryHeap(Structure):
    _fields_ = (
        ("size", c_uint64),
        ("flags", c_uint32),
    )
    if TYPE_CHECKING:
        size: int = 0
        flags: int = 0


class VkPhysicalDeviceMemoryProperties(Structure):
    _fields_ = (
        ("memoryTypeCount", c_uint32),
        ("memoryTypes", VkMemoryType * 32),
        ("memoryHeapCount", c_uint32),
        ("memoryHeaps", VkMemoryHeap * 16),
    )
    if TYPE_CHECKING:
        memoryTypeCount: int = 0
        memoryTypes: Array[VkMemoryType] = (VkMemoryType * 32)()
        memoryHeapCount: int = 0
        memoryHeaps: Array[VkMemoryHeap] = (VkMemoryHeap * 16)()


class VkPhysicalDeviceMemoryProperties2(Structure):
    TYPE = 1000059006
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("memoryProperties", VkPhysicalDeviceMemoryProperties),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        memoryProperties: VkPhysicalDeviceMemoryProperties = VkPhysicalDeviceMemoryProperties()


class VkPhysicalDeviceLimits(Structure):
    _fields_ = (
        ("maxImageDimension1D", c_uint32),
        ("maxImageDimension2D", c_uint32),
        ("maxImageDimension3D", c_uint32),
        ("maxImageDimensionCube", c_uint32),
        ("maxImageArrayLayers", c_uint32),
        ("maxTexelBufferElements", c_uint32),
        ("maxUniformBufferRange", c_uint32),
        ("maxStorageBufferRange", c_uint32),
        ("maxPushConstantsSize", c_uint32),
        ("maxMemoryAllocationCount", c_uint32),
        ("maxSamplerAllocationCount", c_uint32),
        ("bufferImageGranularity", c_uint64),
        ("sparseAddressSpaceSize", c_uint64),
        ("maxBoundDescriptorSets", c_uint32),
        ("maxPerStageDescriptorSamplers", c_uint32),
        ("maxPerStageDescriptorUniformBuffers", c_uint32),
        ("maxPerStageDescriptorStorageBuffers", c_uint32),
        ("maxPerStageDescriptorSampledImages", c_uint32),
        ("maxPerStageDescriptorStorageImages", c_uint32),
        ("maxPerStageDescriptorInputAttachments", c_uint32),
        ("maxPerStageResources", c_uint32),
        ("maxDescriptorSetSamplers", c_uint32),
        ("maxDescriptorSetUniformBuffers", c_uint32),
        ("maxDescriptorSetUniformBuffersDynamic", c_uint32),
        ("maxDescriptorSetStorageBuffers", c_uint32),
        ("maxDescriptorSetStorageBuffersDynamic", c_uint32),
        ("maxDescriptorSetSampledImages", c_uint32),
        ("maxDescriptorSetStorageImages", c_uint32),
        ("maxDescriptorSetInputAttachments", c_uint32),
        ("maxVertexInputAttributes", c_uint32),
        ("maxVertexInputBindings", c_uint32),
        ("maxVertexInputAttributeOffset", c_uint32),
        ("maxVertexInputBindingStride", c_uint32),
        ("maxVertexOutputComponents", c_uint32),
        ("maxTessellationGenerationLevel", c_uint32),
        ("maxTessellationPatchSize", c_uint32),
        ("maxTessellationControlPerVertexInputComponents", c_uint32),
        ("maxTessellationControlPerVertexOutputComponents", c_uint32),
        ("maxTessellationControlPerPatchOutputComponents", c_uint32),
        ("maxTessellationControlTotalOutputComponents", c_uint32),
        ("maxTessellationEvaluationInputComponents", c_uint32),
        ("maxTessellationEvaluationOutputComponents", c_uint32),
        ("maxGeometryShaderInvocations", c_uint32),
        ("maxGeometryInputComponents", c_uint32),
        ("maxGeometryOutputComponents", c_uint32),
        ("maxGeometryOutputVertices", c_uint32),
        ("maxGeometryTotalOutputComponents", c_uint32),
        ("maxFragmentInputComponents", c_uint32),
        ("maxFragmentOutputAttachments", c_uint32),
        ("maxFragmentDualSrcAttachments", c_uint32),
        ("maxFragmentCombinedOutputResources", c_uint32),
        ("maxComputeSharedMemorySize", c_uint32),
        ("maxComputeWorkGroupCount", c_uint32 * 3),
        ("maxComputeWorkGroupInvocations", c_uint32),
        ("maxComputeWorkGroupSize", c_uint32 * 3),
        ("subPixelPrecisionBits", c_uint32),
        ("subTexelPrecisionBits", c_uint32),
        ("mipmapPrecisionBits", c_uint32),
        ("maxDrawIndexedIndexValue", c_uint32),
        ("maxDrawIndirectCount", c_uint32),
        ("maxSamplerLodBias", c_float),
        ("maxSamplerAnisotropy", c_float),
        ("maxViewports", c_uint32),
        ("maxViewportDimensions", c_uint32 * 2),
        ("viewportBoundsRange", c_float * 2),
        ("viewportSubPixelBits", c_uint32),
        ("minMemoryMapAlignment", c_size_t),
        ("minTexelBufferOffsetAlignment", c_uint64),
        ("minUniformBufferOffsetAlignment", c_uint64),
        ("minStorageBufferOffsetAlignment", c_uint64),
        ("minTexelOffset", c_int32),
        ("maxTexelOffset", c_uint32),
        ("minTexelGatherOffset", c_int32),
        ("maxTexelGatherOffset", c_uint32),
        ("minInterpolationOffset", c_float),
        ("maxInterpolationOffset", c_float),
        ("subPixelInterpolationOffsetBits", c_uint32),
        ("maxFramebufferWidth", c_uint32),
        ("maxFramebufferHeight", c_uint32),
        ("maxFramebufferLayers", c_uint32),
        ("framebufferColorSampleCounts", c_uint32),
        ("framebufferDepthSampleCounts", c_uint32),
        ("framebufferStencilSampleCounts", c_uint32),
        ("framebufferNoAttachmentsSampleCounts", c_uint32),
        ("maxColorAttachments", c_uint32),
        ("sampledImageColorSampleCounts", c_uint32),
        ("sampledImageIntegerSampleCounts", c_uint32),
        ("sampledImageDepthSampleCounts", c_uint32),
        ("sampledImageStencilSampleCounts", c_uint32),
        ("storageImageSampleCounts", c_uint32),
        ("maxSampleMaskWords", c_uint32),
        ("timestampComputeAndGraphics", c_uint32),
        ("timestampPeriod", c_float),
        ("maxClipDistances", c_uint32),
        ("maxCullDistances", c_uint32),
        ("maxCombinedClipAndCullDistances", c_uint32),
        ("discreteQueuePriorities", c_uint32),
        ("pointSizeRange", c_float * 2),
        ("lineWidthRange", c_float * 2),
        ("pointSizeGranularity", c_float),
        ("lineWidthGranularity", c_float),
        ("strictLines", c_uint32),
        ("standardSampleLocations", c_uint32),
        ("optimalBufferCopyOffsetAlignment", c_uint64),
        ("optimalBufferCopyRowPitchAlignment", c_uint64),
        ("nonCoherentAtomSize", c_uint64),
    )
    if TYPE_CHECKING:
        maxImageDimension1D: int = 0
        maxImageDimension2D: int = 0
        maxImageDimension3D: int = 0
        maxImageDimensionCube: int = 0
        maxImageArrayLayers: int = 0
        maxTexelBufferElements: int = 0
        maxUniformBufferRange: int = 0
        maxStorageBufferRange: int = 0
        maxPushConstantsSize: int = 0
        maxMemoryAllocationCount: int = 0
        maxSamplerAllocationCount: int = 0
        bufferImageGranularity: int = 0
        sparseAddressSpaceSize: int = 0
        maxBoundDescriptorSets: int = 0
        maxPerStageDescriptorSamplers: int = 0
        maxPerStageDescriptorUniformBuffers: int = 0
        maxPerStageDescriptorStorageBuffers: int = 0
        maxPerStageDescriptorSampledImages: int = 0
        maxPerStageDescriptorStorageImages: int = 0
        maxPerStageDescriptorInputAttachments: int = 0
        maxPerStageResources: int = 0
        maxDescriptorSetSamplers: int = 0
        maxDescriptorSetUniformBuffers: int = 0
        maxDescriptorSetUniformBuffersDynamic: int = 0
        maxDescriptorSetStorageBuffers: int = 0
        maxDescriptorSetStorageBuffersDynamic: int = 0
        maxDescriptorSetSampledImages: int = 0
        maxDescriptorSetStorageImages: int = 0
        maxDescriptorSetInputAttachments: int = 0
        maxVertexInputAttributes: int = 0
        maxVertexInputBindings: int = 0
        maxVertexInputAttributeOffset: int = 0
        maxVertexInputBindingStride: int = 0
        maxVertexOutputComponents: int = 0
        maxTessellationGenerationLevel: int = 0
        maxTessellationPatchSize: int = 0
        maxTessellationControlPerVertexInputComponents: int = 0
        maxTessellationControlPerVertexOutputComponents: int = 0
        maxTessellationControlPerPatchOutputComponents: int = 0
        maxTessellationControlTotalOutputComponents: int = 0
        maxTessellationEvaluationInputComponents: int = 0
        maxTessellationEvaluationOutputComponents: int = 0
        maxGeometryShaderInvocations: int = 0
        maxGeometryInputComponents: int = 0
        maxGeometryOutputComponents: int = 0
        maxGeometryOutputVertices: int = 0
        maxGeometryTotalOutputComponents: int = 0
        maxFragmentInputComponents: int = 0
        maxFragmentOutputAttachments: int = 0
        maxFragmentDualSrcAttachments: int = 0
        maxFragmentCombinedOutputResources: int = 0
        maxComputeSharedMemorySize: int = 0
        maxComputeWorkGroupCount: Array[c_uint32] = (c_uint32 * 3)()
        maxComputeWorkGroupInvocations: int = 0
        maxComputeWorkGroupSize: Array[c_uint32] = (c_uint32 * 3)()
        subPixelPrecisionBits: int = 0
        subTexelPrecisionBits: int = 0
        mipmapPrecisionBits: int = 0
        maxDrawIndexedIndexValue: int = 0
        maxDrawIndirectCount: int = 0
        maxSamplerLodBias: float = 0.0
        maxSamplerAnisotropy: float = 0.0
        maxViewports: int = 0
        maxViewportDimensions: Array[c_uint32] = (c_uint32 * 2)()
        viewportBoundsRange: Array[c_float] = (c_float * 2)()
        viewportSubPixelBits: int = 0
        minMemoryMapAlignment: int = 0
        minTexelBufferOffsetAlignment: int = 0
        minUniformBufferOffsetAlignment: int = 0
        minStorageBufferOffsetAlignment: int = 0
        minTexelOffset: int = 0
        maxTexelOffset: int = 0
        minTexelGatherOffset: int = 0
        maxTexelGatherOffset: int = 0
        minInterpolationOffset: float = 0.0
        maxInterpolationOffset: float = 0.0
        subPixelInterpolationOffsetBits: int = 0
        maxFramebufferWidth: int = 0
        maxFramebufferHeight: int = 0
        maxFramebufferLayers: int = 0
        framebufferColorSampleCounts: int = 0
        framebufferDepthSampleCounts: int = 0
        framebufferStencilSampleCounts: int = 0
        framebufferNoAttachmentsSampleCounts: int = 0
        maxColorAttachments: int = 0
        sampledImageColorSampleCounts: int = 0
        sampledImageIntegerSampleCounts: int = 0
        sampledImageDepthSampleCounts: int = 0
        sampledImageStencilSampleCounts: int = 0
        storageImageSampleCounts: int = 0
        maxSampleMaskWords: int = 0
        timestampComputeAndGraphics: int = 0
        timestampPeriod: float = 0.0
        maxClipDistances: int = 0
        maxCullDistances: int = 0
        maxCombinedClipAndCullDistances: int = 0
        discreteQueuePriorities: int = 0
        pointSizeRange: Array[c_float] = (c_float * 2)()
        lineWidthRange: Array[c_float] = (c_float * 2)()
        pointSizeGranularity: float = 0.0
        lineWidthGranularity: float = 0.0
        strictLines: int = 0
        standardSampleLocations: int = 0
        optimalBufferCopyOffsetAlignment: int = 0
        optimalBufferCopyRowPitchAlignment: int = 0
        nonCoherentAtomSize: int = 0


class VkPhysicalDeviceSparseProperties(Structure):
    _fields_ = (
        ("residencyStandard2DBlockShape", c_uint32),
        ("residencyStandard2DMultisampleBlockShape", c_uint32),
        ("residencyStandard3DBlockShape", c_uint32),
        ("residencyAlignedMipSize", c_uint32),
        ("residencyNonResidentStrict", c_uint32),
    )
    if TYPE_CHECKING:
        residencyStandard2DBlockShape: int = 0
        residencyStandard2DMultisampleBlockShape: int = 0
        residencyStandard3DBlockShape: int = 0
        residencyAlignedMipSize: int = 0
        residencyNonResidentStrict: int = 0


class VkPhysicalDeviceProperties(Structure):
    _fields_ = (
        ("apiVersion", c_uint32),
        ("driverVersion", c_uint32),
        ("vendorID", c_uint32),
        ("deviceID", c_uint32),
        ("deviceType", c_int32),
        ("deviceName", c_char * 256),
        ("pipelineCacheUUID", c_uint8 * 16),
        ("limits", VkPhysicalDeviceLimits),
        ("sparseProperties", VkPhysicalDeviceSparseProperties),
    )
    if TYPE_CHECKING:
        apiVersion: int = 0
        driverVersion: int = 0
        vendorID: int = 0
        deviceID: int = 0
        deviceType: int = 0
        deviceName: bytes = b""
        pipelineCacheUUID: Array[c_uint8] = (c_uint8 * 16)()
        limits: VkPhysicalDeviceLimits = VkPhysicalDeviceLimits()
        sparseProperties: VkPhysicalDeviceSparseProperties = VkPhysicalDeviceSparseProperties()


class VkPhysicalDeviceProperties2(Structure):
    TYPE = 1000059001
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("properties", VkPhysicalDeviceProperties),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        properties: VkPhysicalDeviceProperties = VkPhysicalDeviceProperties()


class VkPhysicalDeviceShaderFloat16Int8Features(Structure):
    TYPE = 1000082000
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("shaderFloat16", c_uint32),
        ("shaderInt8", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        shaderFloat16: int = 0
        shaderInt8: int = 0


class VkPhysicalDeviceShaderIntegerDotProductFeatures(Structure):
    TYPE = 1000280000
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("shaderIntegerDotProduct", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        shaderIntegerDotProduct: int = 0


class VkPhysicalDeviceShaderIntegerDotProductProperties(Structure):
    TYPE = 1000280001
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("integerDotProduct8BitUnsignedAccelerated", c_uint32),
        ("integerDotProduct8BitSignedAccelerated", c_uint32),
        ("integerDotProduct8BitMixedSignednessAccelerated", c_uint32),
        ("integerDotProduct4x8BitPackedUnsignedAccelerated", c_uint32),
        ("integerDotProduct4x8BitPackedSignedAccelerated", c_uint32),
        ("integerDotProduct4x8BitPackedMixedSignednessAccelerated", c_uint32),
        ("integerDotProduct16BitUnsignedAccelerated", c_uint32),
        ("integerDotProduct16BitSignedAccelerated", c_uint32),
        ("integerDotProduct16BitMixedSignednessAccelerated", c_uint32),
        ("integerDotProduct32BitUnsignedAccelerated", c_uint32),
        ("integerDotProduct32BitSignedAccelerated", c_uint32),
        ("integerDotProduct32BitMixedSignednessAccelerated", c_uint32),
        ("integerDotProduct64BitUnsignedAccelerated", c_uint32),
        ("integerDotProduct64BitSignedAccelerated", c_uint32),
        ("integerDotProduct64BitMixedSignednessAccelerated", c_uint32),
        ("integerDotProductAccumulatingSaturating8BitUnsignedAccelerated", c_uint32),
        ("integerDotProductAccumulatingSaturating8BitSignedAccelerated", c_uint32),
        ("integerDotProductAccumulatingSaturating8BitMixedSignednessAccelerated", c_uint32),
        ("integerDotProductAccumulatingSaturating4x8BitPackedUnsignedAccelerated", c_uint32),
        ("integerDotProductAccumulatingSaturating4x8BitPackedSignedAccelerated", c_uint32),
        ("integerDotProductAccumulatingSaturating4x8BitPackedMixedSignednessAccelerated", c_uint32),
        ("integerDotProductAccumulatingSaturating16BitUnsignedAccelerated", c_uint32),
        ("integerDotProductAccumulatingSaturating16BitSignedAccelerated", c_uint32),
        ("integerDotProductAccumulatingSaturating16BitMixedSignednessAccelerated", c_uint32),
        ("integerDotProductAccumulatingSaturating32BitUnsignedAccelerated", c_uint32),
        ("integerDotProductAccumulatingSaturating32BitSignedAccelerated", c_uint32),
        ("integerDotProductAccumulatingSaturating32BitMixedSignednessAccelerated", c_uint32),
        ("integerDotProductAccumulatingSaturating64BitUnsignedAccelerated", c_uint32),
        ("integerDotProductAccumulatingSaturating64BitSignedAccelerated", c_uint32),
        ("integerDotProductAccumulatingSaturating64BitMixedSignednessAccelerated", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        integerDotProduct8BitUnsignedAccelerated: int = 0
        integerDotProduct8BitSignedAccelerated: int = 0
        integerDotProduct8BitMixedSignednessAccelerated: int = 0
        integerDotProduct4x8BitPackedUnsignedAccelerated: int = 0
        integerDotProduct4x8BitPackedSignedAccelerated: int = 0
        integerDotProduct4x8BitPackedMixedSignednessAccelerated: int = 0
        integerDotProduct16BitUnsignedAccelerated: int = 0
        integerDotProduct16BitSignedAccelerated: int = 0
        integerDotProduct16BitMixedSignednessAccelerated: int = 0
        integerDotProduct32BitUnsignedAccelerated: int = 0
        integerDotProduct32BitSignedAccelerated: int = 0
        integerDotProduct32BitMixedSignednessAccelerated: int = 0
        integerDotProduct64BitUnsignedAccelerated: int = 0
        integerDotProduct64BitSignedAccelerated: int = 0
        integerDotProduct64BitMixedSignednessAccelerated: int = 0
        integerDotProductAccumulatingSaturating8BitUnsignedAccelerated: int = 0
        integerDotProductAccumulatingSaturating8BitSignedAccelerated: int = 0
        integerDotProductAccumulatingSaturating8BitMixedSignednessAccelerated: int = 0
        integerDotProductAccumulatingSaturating4x8BitPackedUnsignedAccelerated: int = 0
        integerDotProductAccumulatingSaturating4x8BitPackedSignedAccelerated: int = 0
        integerDotProductAccumulatingSaturating4x8BitPackedMixedSignednessAccelerated: int = 0
        integerDotProductAccumulatingSaturating16BitUnsignedAccelerated: int = 0
        integerDotProductAccumulatingSaturating16BitSignedAccelerated: int = 0
        integerDotProductAccumulatingSaturating16BitMixedSignednessAccelerated: int = 0
        integerDotProductAccumulatingSaturating32BitUnsignedAccelerated: int = 0
        integerDotProductAccumulatingSaturating32BitSignedAccelerated: int = 0
        integerDotProductAccumulatingSaturating32BitMixedSignednessAccelerated: int = 0
        integerDotProductAccumulatingSaturating64BitUnsignedAccelerated: int = 0
        integerDotProductAccumulatingSaturating64BitSignedAccelerated: int = 0
        integerDotProductAccumulatingSaturating64BitMixedSignednessAccelerated: int = 0


class VkPhysicalDeviceSubgroupProperties(Structure):
    TYPE = 1000094000
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("subgroupSize", c_uint32),
        ("supportedStages", c_uint32),
        ("supportedOperations", c_uint32),
        ("quadOperationsInAllStages", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        subgroupSize: int = 0
        supportedStages: int = 0
        supportedOperations: int = 0
        quadOperationsInAllStages: int = 0


class VkPhysicalDeviceSubgroupSizeControlFeatures(Structure):
    TYPE = 1000225002
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("subgroupSizeControl", c_uint32),
        ("computeFullSubgroups", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        subgroupSizeControl: int = 0
        computeFullSubgroups: int = 0


class VkPhysicalDeviceSubgroupSizeControlProperties(Structure):
    TYPE = 1000225000
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("minSubgroupSize", c_uint32),
        ("maxSubgroupSize", c_uint32),
        ("maxComputeWorkgroupSubgroups", c_uint32),
        ("requiredSubgroupSizeStages", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        minSubgroupSize: int = 0
        maxSubgroupSize: int = 0
        maxComputeWorkgroupSubgroups: int = 0
        requiredSubgroupSizeStages: int = 0


class VkPhysicalDeviceTimelineSemaphoreFeatures(Structure):
    TYPE = 1000207000
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("timelineSemaphore", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        timelineSemaphore: int = 0


class VkPhysicalDeviceVulkanMemoryModelFeatures(Structure):
    TYPE = 1000211000
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("vulkanMemoryModel", c_uint32),
        ("vulkanMemoryModelDeviceScope", c_uint32),
        ("vulkanMemoryModelAvailabilityVisibilityChains", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        vulkanMemoryModel: int = 0
        vulkanMemoryModelDeviceScope: int = 0
        vulkanMemoryModelAvailabilityVisibilityChains: int = 0


class VkPipelineCacheCreateInfo(Structure):
    TYPE = 17
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("initialDataSize", c_size_t),
        ("pInitialData", c_void_p),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0
        initialDataSize: int = 0
        pInitialData: Pointee = None


class VkPipelineLayoutCreateInfo(Structure):
    TYPE = 30
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("setLayoutCount", c_uint32),
        ("pSetLayouts", c_void_p),
        ("pushConstantRangeCount", c_uint32),
        ("pPushConstantRanges", c_void_p),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0
        setLayoutCount: int = 0
        pSetLayouts: Pointee = None
        pushConstantRangeCount: int = 0
        pPushConstantRanges: Pointee = None


class VkPipelineShaderStageRequiredSubgroupSizeCreateInfo(Structure):
    TYPE = 1000225001
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("requiredSubgroupSize", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        requiredSubgroupSize: int = 0


class VkPushConstantRange(Structure):
    _fields_ = (
        ("stageFlags", c_uint32),
        ("offset", c_uint32),
        ("size", c_uint32),
    )
    if TYPE_CHECKING:
        stageFlags: int = 0
        offset: int = 0
        size: int = 0


class VkQueryPoolCreateInfo(Structure):
    TYPE = 11
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("queryType", c_int32),
        ("queryCount", c_uint32),
        ("pipelineStatistics", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0
        queryType: int = 0
        queryCount: int = 0
        pipelineStatistics: int = 0


class VkExtent3D(Structure):
    _fields_ = (
        ("width", c_uint32),
        ("height", c_uint32),
        ("depth", c_uint32),
    )
    if TYPE_CHECKING:
        width: int = 0
        height: int = 0
        depth: int = 0


class VkQueueFamilyProperties(Structure):
    _fields_ = (
        ("queueFlags", c_uint32),
        ("queueCount", c_uint32),
        ("timestampValidBits", c_uint32),
        ("minImageTransferGranularity", VkExtent3D),
    )
    if TYPE_CHECKING:
        queueFlags: int = 0
        queueCount: int = 0
        timestampValidBits: int = 0
        minImageTransferGranularity: VkExtent3D = VkExtent3D()


class VkSemaphoreCreateInfo(Structure):
    TYPE = 9
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0


class VkSemaphoreSignalInfo(Structure):
    TYPE = 1000207005
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("semaphore", c_uint64),
        ("value", c_uint64),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        semaphore: int = 0
        value: int = 0


class VkSemaphoreTypeCreateInfo(Structure):
    TYPE = 1000207002
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("semaphoreType", c_int32),
        ("initialValue", c_uint64),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        semaphoreType: int = 0
        initialValue: int = 0


class VkShaderModuleCreateInfo(Structure):
    TYPE = 16
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("flags", c_uint32),
        ("codeSize", c_size_t),
        ("pCode", c_void_p),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        flags: int = 0
        codeSize: int = 0
        pCode: Pointee = None


class VkSpecializationInfo(Structure):
    _fields_ = (
        ("mapEntryCount", c_uint32),
        ("pMapEntries", c_void_p),
        ("dataSize", c_size_t),
        ("pData", c_void_p),
    )
    if TYPE_CHECKING:
        mapEntryCount: int = 0
        pMapEntries: Pointee = None
        dataSize: int = 0
        pData: Pointee = None


class VkSpecializationMapEntry(Structure):
    _fields_ = (
        ("constantID", c_uint32),
        ("offset", c_uint32),
        ("size", c_size_t),
    )
    if TYPE_CHECKING:
        constantID: int = 0
        offset: int = 0
        size: int = 0


class VkSubmitInfo(Structure):
    TYPE = 4
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("waitSemaphoreCount", c_uint32),
        ("pWaitSemaphores", c_void_p),
        ("pWaitDstStageMask", c_void_p),
        ("commandBufferCount", c_uint32),
        ("pCommandBuffers", c_void_p),
        ("signalSemaphoreCount", c_uint32),
        ("pSignalSemaphores", c_void_p),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        waitSemaphoreCount: int = 0
        pWaitSemaphores: Pointee = None
        pWaitDstStageMask: Pointee = None
        commandBufferCount: int = 0
        pCommandBuffers: Pointee = None
        signalSemaphoreCount: int = 0
        pSignalSemaphores: Pointee = None


class VkTimelineSemaphoreSubmitInfo(Structure):
    TYPE = 1000207003
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("waitSemaphoreValueCount", c_uint32),
        ("pWaitSemaphoreValues", c_void_p),
        ("signalSemaphoreValueCount", c_uint32),
        ("pSignalSemaphoreValues", c_void_p),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        waitSemaphoreValueCount: int = 0
        pWaitSemaphoreValues: Pointee = None
        signalSemaphoreValueCount: int = 0
        pSignalSemaphoreValues: Pointee = None


class VkWriteDescriptorSet(Structure):
    TYPE = 35
    _fields_ = (
        ("sType", c_int32),
        ("pNext", c_void_p),
        ("dstSet", c_uint64),
        ("dstBinding", c_uint32),
        ("dstArrayElement", c_uint32),
        ("descriptorCount", c_uint32),
        ("descriptorType", c_int32),
        ("pImageInfo", c_void_p),
        ("pBufferInfo", c_void_p),
        ("pTexelBufferView", c_void_p),
    )
    if TYPE_CHECKING:
        sType: int = 0
        pNext: Pointee = None
        dstSet: int = 0
        dstBinding: int = 0
        dstArrayElement: int = 0
        descriptorCount: int = 0
        descriptorType: int = 0
        pImageInfo: Pointee = None
        pBufferInfo: Pointee = None
        pTexelBufferView: Pointee = None


class Functions:
    """The functions of ``SIGNATURES``."""

    vkAllocateCommandBuffers: Callable[[int, Pointee, Pointee], int]
    vkAllocateDescriptorSets: Callable[[int, Pointee, Pointee], int]
    vkAllocateMemory: Callable[[int, Pointee, Pointee, Pointee], int]
    vkBeginCommandBuffer: Callable[[int, Pointee], int]
    vkBindBufferMemory: Callable[[int, int, int, int], int]
    vkCmdBindDescriptorSets: Callable[[c_void_p, int, c_uint64, int, int, Passed, int, Passed], None]
    vkCmdBindPipeline: Callable[[c_void_p, int, c_uint64], None]
    vkCmdCopyBuffer: Callable[[c_void_p, c_uint64, c_uint64, int, Passed], None]
    vkCmdDispatch: Callable[[c_void_p, int, int, int], None]
    vkCmdPipelineBarrier: Callable[[c_void_p, int, int, int, int, Passed, int, Passed, int, Passed], None]
    vkCmdPushConstants: Callable[[c_void_p, c_uint64, int, int, int, Passed], None]
    vkCmdResetQueryPool: Callable[[c_void_p, c_uint64, int, int], None]
    vkCmdWriteTimestamp: Callable[[c_void_p, int, c_uint64, int], None]
    vkCreateBuffer: Callable[[int, Pointee, Pointee, Pointee], int]
    vkCreateCommandPool: Callable[[int, Pointee, Pointee, Pointee], int]
    vkCreateComputePipelines: Callable[[int, int, int, Pointee, Pointee, Pointee], int]
    vkCreateDescriptorPool: Callable[[int, Pointee, Pointee, Pointee], int]
    vkCreateDescriptorSetLayout: Callable[[int, Pointee, Pointee, Pointee], int]
    vkCreateDevice: Callable[[int, Pointee, Pointee, Pointee], int]
    vkCreateFence: Callable[[int, Pointee, Pointee, Pointee], int]
    vkCreateInstance: Callable[[Pointee, Pointee, Pointee], int]
    vkCreatePipelineCache: Callable[[int, Pointee, Pointee, Pointee], int]
    vkCreatePipelineLayout: Callable[[int, Pointee, Pointee, Pointee], int]
    vkCreateQueryPool: Callable[[int, Pointee, Pointee, Pointee], int]
    vkCreateSemaphore: Callable[[int, Pointee, Pointee, Pointee], int]
    vkCreateShaderModule: Callable[[int, Pointee, Pointee, Pointee], int]
    vkDestroyBuffer: Callable[[int, int, Pointee], None]
    vkDestroyCommandPool: Callable[[int, int, Pointee], None]
    vkDestroyDescriptorPool: Callable[[int, int, Pointee], None]
    vkDestroyDescriptorSetLayout: Callable[[int, int, Pointee], None]
    vkDestroyDevice: Callable[[int, Pointee], None]
    vkDestroyFence: Callable[[int, int, Pointee], None]
    vkDestroyPipeline: Callable[[int, int, Pointee], None]
    vkDestroyPipelineCache: Callable[[int, int, Pointee], None]
    vkDestroyPipelineLayout: Callable[[int, int, Pointee], None]
    vkDestroyQueryPool: Callable[[int, int, Pointee], None]
    vkDestroySemaphore: Callable[[int, int, Pointee], None]
    vkDestroyShaderModule: Callable[[int, int, Pointee], None]
    vkDeviceWaitIdle: Callable[[int], int]
    vkEndCommandBuffer: Callable[[int], int]
    vkEnumerateDeviceExtensionProperties: Callable[[int, bytes | None, Pointee, Pointee], int]
    vkEnumerateInstanceExtensionProperties: Callable[[bytes | None, Pointee, Pointee], int]
    vkEnumeratePhysicalDevices: Callable[[int, Pointee, Pointee], int]
    vkFreeCommandBuffers: Callable[[int, int, int, Pointee], None]
    vkFreeMemory: Callable[[int, int, Pointee], None]
    vkGetBufferDeviceAddress: Callable[[int, Pointee], int]
    vkGetBufferMemoryRequirements: Callable[[int, int, Pointee], None]
    vkGetDeviceQueue: Callable[[int, int, int, Pointee], None]
    vkGetFenceStatus: Callable[[c_void_p, c_uint64], int]
    vkGetInstanceProcAddr: Callable[[int, bytes | None], int | None]
    vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR: Callable[[int, Pointee, Pointee], int]
    vkGetPhysicalDeviceFeatures2: Callable[[int, Pointee], None]
    vkGetPhysicalDeviceMemoryProperties: Callable[[int, Pointee], None]
    vkGetPhysicalDeviceMemoryProperties2: Callable[[int, Pointee], None]
    vkGetPhysicalDeviceProperties2: Callable[[int, Pointee], None]
    vkGetPhysicalDeviceQueueFamilyProperties: Callable[[int, Pointee, Pointee], None]
    vkGetPipelineCacheData: Callable[[int, int, Pointee, Pointee], int]
    vkGetQueryPoolResults: Callable[[int, int, int, int, int, Pointee, int, int], int]
    vkMapMemory: Callable[[int, int, int, int, int, Pointee], int]
    vkQueueSubmit: Callable[[c_void_p, int, Passed, c_uint64], int]
    vkResetFences: Callable[[c_void_p, int, Passed], int]
    vkSignalSemaphore: Callable[[c_void_p, Passed], int]
    vkUpdateDescriptorSets: Callable[[int, int, Pointee, int, Pointee], None]
    vkWaitForFences: Callable[[c_void_p, int, Passed, int, c_uint64], int]


SIGNATURES: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "vkAllocateCommandBuffers": (c_int32, (c_void_p, c_void_p, c_void_p)),
    "vkAllocateDescriptorSets": (c_int32, (c_void_p, c_void_p, c_void_p)),
    "vkAllocateMemory": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "vkBeginCommandBuffer": (c_int32, (c_void_p, c_void_p)),
    "vkBindBufferMemory": (c_int32, (c_void_p, c_uint64, c_uint64, c_uint64)),
    "vkCmdBindDescriptorSets": (None, (c_void_p, c_int32, c_uint64, c_uint32, c_uint32, c_void_p, c_uint32, c_void_p)),
    "vkCmdBindPipeline": (None, (c_void_p, c_int32, c_uint64)),
    "vkCmdCopyBuffer": (None, (c_void_p, c_uint64, c_uint64, c_uint32, c_void_p)),
    "vkCmdDispatch": (None, (c_void_p, c_uint32, c_uint32, c_uint32)),
    "vkCmdPipelineBarrier": (
        None,
        (c_void_p, c_uint32, c_uint32, c_uint32, c_uint32, c_void_p, c_uint32, c_void_p, c_uint32, c_void_p),
    ),
    "vkCmdPushConstants": (None, (c_void_p, c_uint64, c_uint32, c_uint32, c_uint32, c_void_p)),
    "vkCmdResetQueryPool": (None, (c_void_p, c_uint64, c_uint32, c_uint32)),
    "vkCmdWriteTimestamp": (None, (c_void_p, c_int32, c_uint64, c_uint32)),
    "vkCreateBuffer": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "vkCreateCommandPool": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "vkCreateComputePipelines": (c_int32, (c_void_p, c_uint64, c_uint32, c_void_p, c_void_p, c_void_p)),
    "vkCreateDescriptorPool": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "vkCreateDescriptorSetLayout": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "vkCreateDevice": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "vkCreateFence": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "vkCreateInstance": (c_int32, (c_void_p, c_void_p, c_void_p)),
    "vkCreatePipelineCache": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "vkCreatePipelineLayout": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "vkCreateQueryPool": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "vkCreateSemaphore": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "vkCreateShaderModule": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "vkDestroyBuffer": (None, (c_void_p, c_uint64, c_void_p)),
    "vkDestroyCommandPool": (None, (c_void_p, c_uint64, c_void_p)),
    "vkDestroyDescriptorPool": (None, (c_void_p, c_uint64, c_void_p)),
    "vkDestroyDescriptorSetLayout": (None, (c_void_p, c_uint64, c_void_p)),
    "vkDestroyDevice": (None, (c_void_p, c_void_p)),
    "vkDestroyFence": (None, (c_void_p, c_uint64, c_void_p)),
    "vkDestroyPipeline": (None, (c_void_p, c_uint64, c_void_p)),
    "vkDestroyPipelineCache": (None, (c_void_p, c_uint64, c_void_p)),
    "vkDestroyPipelineLayout": (None, (c_void_p, c_uint64, c_void_p)),
    "vkDestroyQueryPool": (None, (c_void_p, c_uint64, c_void_p)),
    "vkDestroySemaphore": (None, (c_void_p, c_uint64, c_void_p)),
    "vkDestroyShaderModule": (None, (c_void_p, c_uint64, c_void_p)),
    "vkDeviceWaitIdle": (c_int32, (c_void_p,)),
    "vkEndCommandBuffer": (c_int32, (c_void_p,)),
    "vkEnumerateDeviceExtensionProperties": (c_int32, (c_void_p, c_char_p, c_void_p, c_void_p)),
    "vkEnumerateInstanceExtensionProperties": (c_int32, (c_char_p, c_void_p, c_void_p)),
    "vkEnumeratePhysicalDevices": (c_int32, (c_void_p, c_void_p, c_void_p)),
    "vkFreeCommandBuffers": (None, (c_void_p, c_uint64, c_uint32, c_void_p)),
    "vkFreeMemory": (None, (c_void_p, c_uint64, c_void_p)),
    "vkGetBufferDeviceAddress": (c_uint64, (c_void_p, c_void_p)),
    "vkGetBufferMemoryRequirements": (None, (c_void_p, c_uint64, c_void_p)),
    "vkGetDeviceQueue": (None, (c_void_p, c_uint32, c_uint32, c_void_p)),
    "vkGetFenceStatus": (c_int32, (c_void_p, c_uint64)),
    "vkGetInstanceProcAddr": (c_void_p, (c_void_p, c_char_p)),
    "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR": (c_int32, (c_void_p, c_void_p, c_void_p)),
    "vkGetPhysicalDeviceFeatures2": (None, (c_void_p, c_void_p)),
    "vkGetPhysicalDeviceMemoryProperties": (None, (c_void_p, c_void_p)),
    "vkGetPhysicalDeviceMemoryProperties2": (None, (c_void_p, c_void_p)),
    "vkGetPhysicalDeviceProperties2": (None, (c_void_p, c_void_p)),
    "vkGetPhysicalDeviceQueueFamilyProperties": (None, (c_void_p, c_void_p, c_void_p)),
    "vkGetPipelineCacheData": (c_int32, (c_void_p, c_uint64, c_void_p, c_void_p)),
    "vkGetQueryPoolResults": (
        c_int32,
        (c_void_p, c_uint64, c_uint32, c_uint32, c_size_t, c_void_p, c_uint64, c_uint32),
    ),
    "vkMapMemory": (c_int32, (c_void_p, c_uint64, c_uint64, c_uint64, c_uint32, c_void_p)),
    "vkQueueSubmit": (c_int32, (c_void_p, c_uint32, c_void_p, c_uint64)),
    "vkResetFences": (c_int32, (c_void_p, c_uint32, c_void_p)),
    "vkSignalSemaphore": (c_int32, (c_void_p, c_void_p)),
    "vkUpdateDescriptorSets": (None, (c_void_p, c_uint32, c_void_p, c_uint32, c_void_p)),
    "vkWaitForFences": (c_int32, (c_void_p, c_uint32, c_void_p, c_uint32, c_uint64)),
}
"""Result and arguments of each function."""

EXTENSIONS = ["vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"]
"""Functions that the loader does not export, asked for by name."""

UNCONVERTED = (
    "vkCmdBindDescriptorSets",
    "vkCmdBindPipeline",
    "vkCmdCopyBuffer",
    "vkCmdDispatch",
    "vkCmdPipelineBarrier",
    "vkCmdPushConstants",
    "vkCmdResetQueryPool",
    "vkCmdWriteTimestamp",
    "vkGetFenceStatus",
    "vkQueueSubmit",
    "vkResetFences",
    "vkSignalSemaphore",
    "vkWaitForFences",
)
"""Functions called with numbers of 32 bits and objects of ctypes only, which need no conversion."""
