"""Vulkan 1.4.309, from Khronos' registry; written by tools/vulkan_binding.py."""

from collections.abc import Callable
from ctypes import Array, c_char_p, c_float, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Annotated

from pumice_vulkan.device.native.structure import (
    ZERO,
    Float,
    Int32,
    Passed,
    Pointee,
    Pointer,
    Size,
    Structure,
    Text,
    UInt8,
    UInt32,
    UInt64,
    define,
)

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
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    pApplicationName: Text = ZERO
    applicationVersion: UInt32 = ZERO
    pEngineName: Text = ZERO
    engineVersion: UInt32 = ZERO
    apiVersion: UInt32 = ZERO


class VkBufferCopy(Structure):
    srcOffset: UInt64 = ZERO
    dstOffset: UInt64 = ZERO
    size: UInt64 = ZERO


class VkBufferCreateInfo(Structure):
    TYPE = 12
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO
    size: UInt64 = ZERO
    usage: UInt32 = ZERO
    sharingMode: Int32 = ZERO
    queueFamilyIndexCount: UInt32 = ZERO
    pQueueFamilyIndices: Pointer = ZERO


class VkBufferDeviceAddressInfo(Structure):
    TYPE = 1000244001
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    buffer: UInt64 = ZERO


class VkCommandBufferAllocateInfo(Structure):
    TYPE = 40
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    commandPool: UInt64 = ZERO
    level: Int32 = ZERO
    commandBufferCount: UInt32 = ZERO


class VkCommandBufferBeginInfo(Structure):
    TYPE = 42
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO
    pInheritanceInfo: Pointer = ZERO


class VkCommandPoolCreateInfo(Structure):
    TYPE = 39
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO
    queueFamilyIndex: UInt32 = ZERO


class VkPipelineShaderStageCreateInfo(Structure):
    TYPE = 18
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO
    stage: Int32 = ZERO
    module: UInt64 = ZERO
    pName: Text = ZERO
    pSpecializationInfo: Pointer = ZERO


class VkComputePipelineCreateInfo(Structure):
    TYPE = 29
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO
    stage: VkPipelineShaderStageCreateInfo = ZERO
    layout: UInt64 = ZERO
    basePipelineHandle: UInt64 = ZERO
    basePipelineIndex: Int32 = ZERO


class VkCooperativeMatrixPropertiesKHR(Structure):
    TYPE = 1000506001
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    MSize: UInt32 = ZERO
    NSize: UInt32 = ZERO
    KSize: UInt32 = ZERO
    AType: Int32 = ZERO
    BType: Int32 = ZERO
    CType: Int32 = ZERO
    ResultType: Int32 = ZERO
    saturatingAccumulation: UInt32 = ZERO
    scope: Int32 = ZERO


class VkDescriptorBufferInfo(Structure):
    buffer: UInt64 = ZERO
    offset: UInt64 = ZERO
    range: UInt64 = ZERO


class VkDescriptorPoolCreateInfo(Structure):
    TYPE = 33
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO
    maxSets: UInt32 = ZERO
    poolSizeCount: UInt32 = ZERO
    pPoolSizes: Pointer = ZERO


class VkDescriptorPoolSize(Structure):
    type: Int32 = ZERO
    descriptorCount: UInt32 = ZERO


class VkDescriptorSetAllocateInfo(Structure):
    TYPE = 34
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    descriptorPool: UInt64 = ZERO
    descriptorSetCount: UInt32 = ZERO
    pSetLayouts: Pointer = ZERO


class VkDescriptorSetLayoutBinding(Structure):
    binding: UInt32 = ZERO
    descriptorType: Int32 = ZERO
    descriptorCount: UInt32 = ZERO
    stageFlags: UInt32 = ZERO
    pImmutableSamplers: Pointer = ZERO


class VkDescriptorSetLayoutCreateInfo(Structure):
    TYPE = 32
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO
    bindingCount: UInt32 = ZERO
    pBindings: Pointer = ZERO


class VkDeviceCreateInfo(Structure):
    TYPE = 3
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO
    queueCreateInfoCount: UInt32 = ZERO
    pQueueCreateInfos: Pointer = ZERO
    enabledLayerCount: UInt32 = ZERO
    ppEnabledLayerNames: Pointer = ZERO
    enabledExtensionCount: UInt32 = ZERO
    ppEnabledExtensionNames: Pointer = ZERO
    pEnabledFeatures: Pointer = ZERO


class VkDeviceQueueCreateInfo(Structure):
    TYPE = 2
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO
    queueFamilyIndex: UInt32 = ZERO
    queueCount: UInt32 = ZERO
    pQueuePriorities: Pointer = ZERO


class VkExtensionProperties(Structure):
    extensionName: Annotated[bytes, 256] = ZERO
    specVersion: UInt32 = ZERO


class VkFenceCreateInfo(Structure):
    TYPE = 8
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO


class VkInstanceCreateInfo(Structure):
    TYPE = 1
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO
    pApplicationInfo: Pointer = ZERO
    enabledLayerCount: UInt32 = ZERO
    ppEnabledLayerNames: Pointer = ZERO
    enabledExtensionCount: UInt32 = ZERO
    ppEnabledExtensionNames: Pointer = ZERO


class VkMemoryAllocateFlagsInfo(Structure):
    TYPE = 1000060000
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO
    deviceMask: UInt32 = ZERO


class VkMemoryAllocateInfo(Structure):
    TYPE = 5
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    allocationSize: UInt64 = ZERO
    memoryTypeIndex: UInt32 = ZERO


class VkMemoryBarrier(Structure):
    TYPE = 46
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    srcAccessMask: UInt32 = ZERO
    dstAccessMask: UInt32 = ZERO


class VkMemoryRequirements(Structure):
    size: UInt64 = ZERO
    alignment: UInt64 = ZERO
    memoryTypeBits: UInt32 = ZERO


class VkPhysicalDevice16BitStorageFeatures(Structure):
    TYPE = 1000083000
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    storageBuffer16BitAccess: UInt32 = ZERO
    uniformAndStorageBuffer16BitAccess: UInt32 = ZERO
    storagePushConstant16: UInt32 = ZERO
    storageInputOutput16: UInt32 = ZERO


class VkPhysicalDevice8BitStorageFeatures(Structure):
    TYPE = 1000177000
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    storageBuffer8BitAccess: UInt32 = ZERO
    uniformAndStorageBuffer8BitAccess: UInt32 = ZERO
    storagePushConstant8: UInt32 = ZERO


class VkPhysicalDeviceBufferDeviceAddressFeatures(Structure):
    TYPE = 1000257000
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    bufferDeviceAddress: UInt32 = ZERO
    bufferDeviceAddressCaptureReplay: UInt32 = ZERO
    bufferDeviceAddressMultiDevice: UInt32 = ZERO


class VkPhysicalDeviceCooperativeMatrixFeaturesKHR(Structure):
    TYPE = 1000506000
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    cooperativeMatrix: UInt32 = ZERO
    cooperativeMatrixRobustBufferAccess: UInt32 = ZERO


class VkConformanceVersion(Structure):
    major: UInt8 = ZERO
    minor: UInt8 = ZERO
    subminor: UInt8 = ZERO
    patch: UInt8 = ZERO


class VkPhysicalDeviceDriverProperties(Structure):
    TYPE = 1000196000
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    driverID: Int32 = ZERO
    driverName: Annotated[bytes, 256] = ZERO
    driverInfo: Annotated[bytes, 256] = ZERO
    conformanceVersion: VkConformanceVersion = ZERO


class VkPhysicalDeviceFeatures(Structure):
    robustBufferAccess: UInt32 = ZERO
    fullDrawIndexUint32: UInt32 = ZERO
    imageCubeArray: UInt32 = ZERO
    independentBlend: UInt32 = ZERO
    geometryShader: UInt32 = ZERO
    tessellationShader: UInt32 = ZERO
    sampleRateShading: UInt32 = ZERO
    dualSrcBlend: UInt32 = ZERO
    logicOp: UInt32 = ZERO
    multiDrawIndirect: UInt32 = ZERO
    drawIndirectFirstInstance: UInt32 = ZERO
    depthClamp: UInt32 = ZERO
    depthBiasClamp: UInt32 = ZERO
    fillModeNonSolid: UInt32 = ZERO
    depthBounds: UInt32 = ZERO
    wideLines: UInt32 = ZERO
    largePoints: UInt32 = ZERO
    alphaToOne: UInt32 = ZERO
    multiViewport: UInt32 = ZERO
    samplerAnisotropy: UInt32 = ZERO
    textureCompressionETC2: UInt32 = ZERO
    textureCompressionASTC_LDR: UInt32 = ZERO
    textureCompressionBC: UInt32 = ZERO
    occlusionQueryPrecise: UInt32 = ZERO
    pipelineStatisticsQuery: UInt32 = ZERO
    vertexPipelineStoresAndAtomics: UInt32 = ZERO
    fragmentStoresAndAtomics: UInt32 = ZERO
    shaderTessellationAndGeometryPointSize: UInt32 = ZERO
    shaderImageGatherExtended: UInt32 = ZERO
    shaderStorageImageExtendedFormats: UInt32 = ZERO
    shaderStorageImageMultisample: UInt32 = ZERO
    shaderStorageImageReadWithoutFormat: UInt32 = ZERO
    shaderStorageImageWriteWithoutFormat: UInt32 = ZERO
    shaderUniformBufferArrayDynamicIndexing: UInt32 = ZERO
    shaderSampledImageArrayDynamicIndexing: UInt32 = ZERO
    shaderStorageBufferArrayDynamicIndexing: UInt32 = ZERO
    shaderStorageImageArrayDynamicIndexing: UInt32 = ZERO
    shaderClipDistance: UInt32 = ZERO
    shaderCullDistance: UInt32 = ZERO
    shaderFloat64: UInt32 = ZERO
    shaderInt64: UInt32 = ZERO
    shaderInt16: UInt32 = ZERO
    shaderResourceResidency: UInt32 = ZERO
    shaderResourceMinLod: UInt32 = ZERO
    sparseBinding: UInt32 = ZERO
    sparseResidencyBuffer: UInt32 = ZERO
    sparseResidencyImage2D: UInt32 = ZERO
    sparseResidencyImage3D: UInt32 = ZERO
    sparseResidency2Samples: UInt32 = ZERO
    sparseResidency4Samples: UInt32 = ZERO
    sparseResidency8Samples: UInt32 = ZERO
    sparseResidency16Samples: UInt32 = ZERO
    sparseResidencyAliased: UInt32 = ZERO
    variableMultisampleRate: UInt32 = ZERO
    inheritedQueries: UInt32 = ZERO


class VkPhysicalDeviceFeatures2(Structure):
    TYPE = 1000059000
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    features: VkPhysicalDeviceFeatures = ZERO


class VkPhysicalDeviceIDProperties(Structure):
    TYPE = 1000071004
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    deviceUUID: Annotated[Array[c_uint8], 16] = ZERO
    driverUUID: Annotated[Array[c_uint8], 16] = ZERO
    deviceLUID: Annotated[Array[c_uint8], 8] = ZERO
    deviceNodeMask: UInt32 = ZERO
    deviceLUIDValid: UInt32 = ZERO


class VkPhysicalDeviceMaintenance3Properties(Structure):
    TYPE = 1000168000
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    maxPerSetDescriptors: UInt32 = ZERO
    maxMemoryAllocationSize: UInt64 = ZERO


class VkPhysicalDeviceMaintenance4Properties(Structure):
    TYPE = 1000413001
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    maxBufferSize: UInt64 = ZERO


class VkPhysicalDeviceMemoryBudgetPropertiesEXT(Structure):
    TYPE = 1000237000
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    heapBudget: Annotated[Array[c_uint64], 16] = ZERO
    heapUsage: Annotated[Array[c_uint64], 16] = ZERO


class VkMemoryType(Structure):
    propertyFlags: UInt32 = ZERO
    heapIndex: UInt32 = ZERO


class VkMemoryHeap(Structure):
    size: UInt64 = ZERO
    flags: UInt32 = ZERO


class VkPhysicalDeviceMemoryProperties(Structure):
    memoryTypeCount: UInt32 = ZERO
    memoryTypes: Annotated[Array[VkMemoryType], 32] = ZERO
    memoryHeapCount: UInt32 = ZERO
    memoryHeaps: Annotated[Array[VkMemoryHeap], 16] = ZERO


class VkPhysicalDeviceMemoryProperties2(Structure):
    TYPE = 1000059006
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    memoryProperties: VkPhysicalDeviceMemoryProperties = ZERO


class VkPhysicalDeviceLimits(Structure):
    maxImageDimension1D: UInt32 = ZERO
    maxImageDimension2D: UInt32 = ZERO
    maxImageDimension3D: UInt32 = ZERO
    maxImageDimensionCube: UInt32 = ZERO
    maxImageArrayLayers: UInt32 = ZERO
    maxTexelBufferElements: UInt32 = ZERO
    maxUniformBufferRange: UInt32 = ZERO
    maxStorageBufferRange: UInt32 = ZERO
    maxPushConstantsSize: UInt32 = ZERO
    maxMemoryAllocationCount: UInt32 = ZERO
    maxSamplerAllocationCount: UInt32 = ZERO
    bufferImageGranularity: UInt64 = ZERO
    sparseAddressSpaceSize: UInt64 = ZERO
    maxBoundDescriptorSets: UInt32 = ZERO
    maxPerStageDescriptorSamplers: UInt32 = ZERO
    maxPerStageDescriptorUniformBuffers: UInt32 = ZERO
    maxPerStageDescriptorStorageBuffers: UInt32 = ZERO
    maxPerStageDescriptorSampledImages: UInt32 = ZERO
    maxPerStageDescriptorStorageImages: UInt32 = ZERO
    maxPerStageDescriptorInputAttachments: UInt32 = ZERO
    maxPerStageResources: UInt32 = ZERO
    maxDescriptorSetSamplers: UInt32 = ZERO
    maxDescriptorSetUniformBuffers: UInt32 = ZERO
    maxDescriptorSetUniformBuffersDynamic: UInt32 = ZERO
    maxDescriptorSetStorageBuffers: UInt32 = ZERO
    maxDescriptorSetStorageBuffersDynamic: UInt32 = ZERO
    maxDescriptorSetSampledImages: UInt32 = ZERO
    maxDescriptorSetStorageImages: UInt32 = ZERO
    maxDescriptorSetInputAttachments: UInt32 = ZERO
    maxVertexInputAttributes: UInt32 = ZERO
    maxVertexInputBindings: UInt32 = ZERO
    maxVertexInputAttributeOffset: UInt32 = ZERO
    maxVertexInputBindingStride: UInt32 = ZERO
    maxVertexOutputComponents: UInt32 = ZERO
    maxTessellationGenerationLevel: UInt32 = ZERO
    maxTessellationPatchSize: UInt32 = ZERO
    maxTessellationControlPerVertexInputComponents: UInt32 = ZERO
    maxTessellationControlPerVertexOutputComponents: UInt32 = ZERO
    maxTessellationControlPerPatchOutputComponents: UInt32 = ZERO
    maxTessellationControlTotalOutputComponents: UInt32 = ZERO
    maxTessellationEvaluationInputComponents: UInt32 = ZERO
    maxTessellationEvaluationOutputComponents: UInt32 = ZERO
    maxGeometryShaderInvocations: UInt32 = ZERO
    maxGeometryInputComponents: UInt32 = ZERO
    maxGeometryOutputComponents: UInt32 = ZERO
    maxGeometryOutputVertices: UInt32 = ZERO
    maxGeometryTotalOutputComponents: UInt32 = ZERO
    maxFragmentInputComponents: UInt32 = ZERO
    maxFragmentOutputAttachments: UInt32 = ZERO
    maxFragmentDualSrcAttachments: UInt32 = ZERO
    maxFragmentCombinedOutputResources: UInt32 = ZERO
    maxComputeSharedMemorySize: UInt32 = ZERO
    maxComputeWorkGroupCount: Annotated[Array[c_uint32], 3] = ZERO
    maxComputeWorkGroupInvocations: UInt32 = ZERO
    maxComputeWorkGroupSize: Annotated[Array[c_uint32], 3] = ZERO
    subPixelPrecisionBits: UInt32 = ZERO
    subTexelPrecisionBits: UInt32 = ZERO
    mipmapPrecisionBits: UInt32 = ZERO
    maxDrawIndexedIndexValue: UInt32 = ZERO
    maxDrawIndirectCount: UInt32 = ZERO
    maxSamplerLodBias: Float = ZERO
    maxSamplerAnisotropy: Float = ZERO
    maxViewports: UInt32 = ZERO
    maxViewportDimensions: Annotated[Array[c_uint32], 2] = ZERO
    viewportBoundsRange: Annotated[Array[c_float], 2] = ZERO
    viewportSubPixelBits: UInt32 = ZERO
    minMemoryMapAlignment: Size = ZERO
    minTexelBufferOffsetAlignment: UInt64 = ZERO
    minUniformBufferOffsetAlignment: UInt64 = ZERO
    minStorageBufferOffsetAlignment: UInt64 = ZERO
    minTexelOffset: Int32 = ZERO
    maxTexelOffset: UInt32 = ZERO
    minTexelGatherOffset: Int32 = ZERO
    maxTexelGatherOffset: UInt32 = ZERO
    minInterpolationOffset: Float = ZERO
    maxInterpolationOffset: Float = ZERO
    subPixelInterpolationOffsetBits: UInt32 = ZERO
    maxFramebufferWidth: UInt32 = ZERO
    maxFramebufferHeight: UInt32 = ZERO
    maxFramebufferLayers: UInt32 = ZERO
    framebufferColorSampleCounts: UInt32 = ZERO
    framebufferDepthSampleCounts: UInt32 = ZERO
    framebufferStencilSampleCounts: UInt32 = ZERO
    framebufferNoAttachmentsSampleCounts: UInt32 = ZERO
    maxColorAttachments: UInt32 = ZERO
    sampledImageColorSampleCounts: UInt32 = ZERO
    sampledImageIntegerSampleCounts: UInt32 = ZERO
    sampledImageDepthSampleCounts: UInt32 = ZERO
    sampledImageStencilSampleCounts: UInt32 = ZERO
    storageImageSampleCounts: UInt32 = ZERO
    maxSampleMaskWords: UInt32 = ZERO
    timestampComputeAndGraphics: UInt32 = ZERO
    timestampPeriod: Float = ZERO
    maxClipDistances: UInt32 = ZERO
    maxCullDistances: UInt32 = ZERO
    maxCombinedClipAndCullDistances: UInt32 = ZERO
    discreteQueuePriorities: UInt32 = ZERO
    pointSizeRange: Annotated[Array[c_float], 2] = ZERO
    lineWidthRange: Annotated[Array[c_float], 2] = ZERO
    pointSizeGranularity: Float = ZERO
    lineWidthGranularity: Float = ZERO
    strictLines: UInt32 = ZERO
    standardSampleLocations: UInt32 = ZERO
    optimalBufferCopyOffsetAlignment: UInt64 = ZERO
    optimalBufferCopyRowPitchAlignment: UInt64 = ZERO
    nonCoherentAtomSize: UInt64 = ZERO


class VkPhysicalDeviceSparseProperties(Structure):
    residencyStandard2DBlockShape: UInt32 = ZERO
    residencyStandard2DMultisampleBlockShape: UInt32 = ZERO
    residencyStandard3DBlockShape: UInt32 = ZERO
    residencyAlignedMipSize: UInt32 = ZERO
    residencyNonResidentStrict: UInt32 = ZERO


class VkPhysicalDeviceProperties(Structure):
    apiVersion: UInt32 = ZERO
    driverVersion: UInt32 = ZERO
    vendorID: UInt32 = ZERO
    deviceID: UInt32 = ZERO
    deviceType: Int32 = ZERO
    deviceName: Annotated[bytes, 256] = ZERO
    pipelineCacheUUID: Annotated[Array[c_uint8], 16] = ZERO
    limits: VkPhysicalDeviceLimits = ZERO
    sparseProperties: VkPhysicalDeviceSparseProperties = ZERO


class VkPhysicalDeviceProperties2(Structure):
    TYPE = 1000059001
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    properties: VkPhysicalDeviceProperties = ZERO


class VkPhysicalDeviceShaderFloat16Int8Features(Structure):
    TYPE = 1000082000
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    shaderFloat16: UInt32 = ZERO
    shaderInt8: UInt32 = ZERO


class VkPhysicalDeviceShaderIntegerDotProductFeatures(Structure):
    TYPE = 1000280000
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    shaderIntegerDotProduct: UInt32 = ZERO


class VkPhysicalDeviceShaderIntegerDotProductProperties(Structure):
    TYPE = 1000280001
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    integerDotProduct8BitUnsignedAccelerated: UInt32 = ZERO
    integerDotProduct8BitSignedAccelerated: UInt32 = ZERO
    integerDotProduct8BitMixedSignednessAccelerated: UInt32 = ZERO
    integerDotProduct4x8BitPackedUnsignedAccelerated: UInt32 = ZERO
    integerDotProduct4x8BitPackedSignedAccelerated: UInt32 = ZERO
    integerDotProduct4x8BitPackedMixedSignednessAccelerated: UInt32 = ZERO
    integerDotProduct16BitUnsignedAccelerated: UInt32 = ZERO
    integerDotProduct16BitSignedAccelerated: UInt32 = ZERO
    integerDotProduct16BitMixedSignednessAccelerated: UInt32 = ZERO
    integerDotProduct32BitUnsignedAccelerated: UInt32 = ZERO
    integerDotProduct32BitSignedAccelerated: UInt32 = ZERO
    integerDotProduct32BitMixedSignednessAccelerated: UInt32 = ZERO
    integerDotProduct64BitUnsignedAccelerated: UInt32 = ZERO
    integerDotProduct64BitSignedAccelerated: UInt32 = ZERO
    integerDotProduct64BitMixedSignednessAccelerated: UInt32 = ZERO
    integerDotProductAccumulatingSaturating8BitUnsignedAccelerated: UInt32 = ZERO
    integerDotProductAccumulatingSaturating8BitSignedAccelerated: UInt32 = ZERO
    integerDotProductAccumulatingSaturating8BitMixedSignednessAccelerated: UInt32 = ZERO
    integerDotProductAccumulatingSaturating4x8BitPackedUnsignedAccelerated: UInt32 = ZERO
    integerDotProductAccumulatingSaturating4x8BitPackedSignedAccelerated: UInt32 = ZERO
    integerDotProductAccumulatingSaturating4x8BitPackedMixedSignednessAccelerated: UInt32 = ZERO
    integerDotProductAccumulatingSaturating16BitUnsignedAccelerated: UInt32 = ZERO
    integerDotProductAccumulatingSaturating16BitSignedAccelerated: UInt32 = ZERO
    integerDotProductAccumulatingSaturating16BitMixedSignednessAccelerated: UInt32 = ZERO
    integerDotProductAccumulatingSaturating32BitUnsignedAccelerated: UInt32 = ZERO
    integerDotProductAccumulatingSaturating32BitSignedAccelerated: UInt32 = ZERO
    integerDotProductAccumulatingSaturating32BitMixedSignednessAccelerated: UInt32 = ZERO
    integerDotProductAccumulatingSaturating64BitUnsignedAccelerated: UInt32 = ZERO
    integerDotProductAccumulatingSaturating64BitSignedAccelerated: UInt32 = ZERO
    integerDotProductAccumulatingSaturating64BitMixedSignednessAccelerated: UInt32 = ZERO


class VkPhysicalDeviceSubgroupProperties(Structure):
    TYPE = 1000094000
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    subgroupSize: UInt32 = ZERO
    supportedStages: UInt32 = ZERO
    supportedOperations: UInt32 = ZERO
    quadOperationsInAllStages: UInt32 = ZERO


class VkPhysicalDeviceSubgroupSizeControlFeatures(Structure):
    TYPE = 1000225002
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    subgroupSizeControl: UInt32 = ZERO
    computeFullSubgroups: UInt32 = ZERO


class VkPhysicalDeviceSubgroupSizeControlProperties(Structure):
    TYPE = 1000225000
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    minSubgroupSize: UInt32 = ZERO
    maxSubgroupSize: UInt32 = ZERO
    maxComputeWorkgroupSubgroups: UInt32 = ZERO
    requiredSubgroupSizeStages: UInt32 = ZERO


class VkPhysicalDeviceTimelineSemaphoreFeatures(Structure):
    TYPE = 1000207000
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    timelineSemaphore: UInt32 = ZERO


class VkPhysicalDeviceVulkanMemoryModelFeatures(Structure):
    TYPE = 1000211000
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    vulkanMemoryModel: UInt32 = ZERO
    vulkanMemoryModelDeviceScope: UInt32 = ZERO
    vulkanMemoryModelAvailabilityVisibilityChains: UInt32 = ZERO


class VkPipelineCacheCreateInfo(Structure):
    TYPE = 17
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO
    initialDataSize: Size = ZERO
    pInitialData: Pointer = ZERO


class VkPipelineLayoutCreateInfo(Structure):
    TYPE = 30
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO
    setLayoutCount: UInt32 = ZERO
    pSetLayouts: Pointer = ZERO
    pushConstantRangeCount: UInt32 = ZERO
    pPushConstantRanges: Pointer = ZERO


class VkPipelineShaderStageRequiredSubgroupSizeCreateInfo(Structure):
    TYPE = 1000225001
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    requiredSubgroupSize: UInt32 = ZERO


class VkPushConstantRange(Structure):
    stageFlags: UInt32 = ZERO
    offset: UInt32 = ZERO
    size: UInt32 = ZERO


class VkQueryPoolCreateInfo(Structure):
    TYPE = 11
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO
    queryType: Int32 = ZERO
    queryCount: UInt32 = ZERO
    pipelineStatistics: UInt32 = ZERO


class VkExtent3D(Structure):
    width: UInt32 = ZERO
    height: UInt32 = ZERO
    depth: UInt32 = ZERO


class VkQueueFamilyProperties(Structure):
    queueFlags: UInt32 = ZERO
    queueCount: UInt32 = ZERO
    timestampValidBits: UInt32 = ZERO
    minImageTransferGranularity: VkExtent3D = ZERO


class VkSemaphoreCreateInfo(Structure):
    TYPE = 9
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO


class VkSemaphoreSignalInfo(Structure):
    TYPE = 1000207005
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    semaphore: UInt64 = ZERO
    value: UInt64 = ZERO


class VkSemaphoreTypeCreateInfo(Structure):
    TYPE = 1000207002
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    semaphoreType: Int32 = ZERO
    initialValue: UInt64 = ZERO


class VkShaderModuleCreateInfo(Structure):
    TYPE = 16
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    flags: UInt32 = ZERO
    codeSize: Size = ZERO
    pCode: Pointer = ZERO


class VkSpecializationInfo(Structure):
    mapEntryCount: UInt32 = ZERO
    pMapEntries: Pointer = ZERO
    dataSize: Size = ZERO
    pData: Pointer = ZERO


class VkSpecializationMapEntry(Structure):
    constantID: UInt32 = ZERO
    offset: UInt32 = ZERO
    size: Size = ZERO


class VkSubmitInfo(Structure):
    TYPE = 4
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    waitSemaphoreCount: UInt32 = ZERO
    pWaitSemaphores: Pointer = ZERO
    pWaitDstStageMask: Pointer = ZERO
    commandBufferCount: UInt32 = ZERO
    pCommandBuffers: Pointer = ZERO
    signalSemaphoreCount: UInt32 = ZERO
    pSignalSemaphores: Pointer = ZERO


class VkTimelineSemaphoreSubmitInfo(Structure):
    TYPE = 1000207003
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    waitSemaphoreValueCount: UInt32 = ZERO
    pWaitSemaphoreValues: Pointer = ZERO
    signalSemaphoreValueCount: UInt32 = ZERO
    pSignalSemaphoreValues: Pointer = ZERO


class VkWriteDescriptorSet(Structure):
    TYPE = 35
    sType: Int32 = ZERO
    pNext: Pointer = ZERO
    dstSet: UInt64 = ZERO
    dstBinding: UInt32 = ZERO
    dstArrayElement: UInt32 = ZERO
    descriptorCount: UInt32 = ZERO
    descriptorType: Int32 = ZERO
    pImageInfo: Pointer = ZERO
    pBufferInfo: Pointer = ZERO
    pTexelBufferView: Pointer = ZERO


define(globals())


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
