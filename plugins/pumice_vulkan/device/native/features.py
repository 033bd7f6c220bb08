"""Optional features of a device: detection, and the structures that enable them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from pumice_vulkan.device.contract import MatrixShape
from pumice_vulkan.device.native.api import V1_1, V1_2, V1_3, lib, listed
from pumice_vulkan.device.native.binding import (
    VK_SCOPE_SUBGROUP_KHR,
    VK_SHADER_STAGE_COMPUTE_BIT,
    VK_SUBGROUP_FEATURE_ARITHMETIC_BIT,
    VK_SUBGROUP_FEATURE_BALLOT_BIT,
    VK_SUBGROUP_FEATURE_CLUSTERED_BIT,
    VK_SUBGROUP_FEATURE_SHUFFLE_BIT,
    VK_SUBGROUP_FEATURE_SHUFFLE_RELATIVE_BIT,
    VK_SUBGROUP_FEATURE_VOTE_BIT,
    VkCooperativeMatrixPropertiesKHR,
    VkPhysicalDevice8BitStorageFeatures,
    VkPhysicalDevice16BitStorageFeatures,
    VkPhysicalDeviceBufferDeviceAddressFeatures,
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR,
    VkPhysicalDeviceFeatures2,
    VkPhysicalDeviceShaderFloat16Int8Features,
    VkPhysicalDeviceShaderIntegerDotProductFeatures,
    VkPhysicalDeviceSubgroupProperties,
    VkPhysicalDeviceSubgroupSizeControlFeatures,
    VkPhysicalDeviceTimelineSemaphoreFeatures,
    VkPhysicalDeviceVulkanMemoryModelFeatures,
)
from pumice_vulkan.device.native.loader import extension_function
from pumice_vulkan.device.native.structure import Structure


@dataclass(frozen=True)
class FeatureStruct:
    """A Vulkan feature structure: core since ``version``, before that part of ``extension``."""

    kind: type[Structure]
    extension: str
    version: int
    fields: dict[str, str]  # field -> Pumice's name


NEVER = 2**32 - 1  # not in the core of any version

CORE = {"shaderInt16": "int16", "shaderInt64": "int64"}

STRUCTS = [
    FeatureStruct(
        VkPhysicalDevice16BitStorageFeatures,
        "VK_KHR_16bit_storage",
        V1_1,
        {"storageBuffer16BitAccess": "storage16"},
    ),
    FeatureStruct(
        VkPhysicalDevice8BitStorageFeatures,
        "VK_KHR_8bit_storage",
        V1_2,
        {"storageBuffer8BitAccess": "storage8"},
    ),
    FeatureStruct(
        VkPhysicalDeviceShaderFloat16Int8Features,
        "VK_KHR_shader_float16_int8",
        V1_2,
        {"shaderFloat16": "float16", "shaderInt8": "int8"},
    ),
    FeatureStruct(
        VkPhysicalDeviceVulkanMemoryModelFeatures,
        "VK_KHR_vulkan_memory_model",
        V1_2,
        {"vulkanMemoryModel": "vulkan_memory_model", "vulkanMemoryModelDeviceScope": "vulkan_memory_model_device"},
    ),
    FeatureStruct(
        VkPhysicalDeviceBufferDeviceAddressFeatures,
        "",
        V1_2,
        {"bufferDeviceAddress": "buffer_address"},
    ),
    FeatureStruct(
        VkPhysicalDeviceTimelineSemaphoreFeatures,
        "",
        V1_2,
        {"timelineSemaphore": "timeline_semaphore"},
    ),
    FeatureStruct(
        VkPhysicalDeviceSubgroupSizeControlFeatures,
        "VK_EXT_subgroup_size_control",
        V1_3,
        {"subgroupSizeControl": "subgroup_size_control", "computeFullSubgroups": "full_subgroups"},
    ),
    FeatureStruct(
        VkPhysicalDeviceShaderIntegerDotProductFeatures,
        "VK_KHR_shader_integer_dot_product",
        V1_3,
        {"shaderIntegerDotProduct": "integer_dot_product"},
    ),
    FeatureStruct(
        VkPhysicalDeviceCooperativeMatrixFeaturesKHR,
        "VK_KHR_cooperative_matrix",
        NEVER,
        {"cooperativeMatrix": "cooperative_matrix"},
    ),
]

SUBGROUP_OPERATIONS = {
    "vote": VK_SUBGROUP_FEATURE_VOTE_BIT,
    "arithmetic": VK_SUBGROUP_FEATURE_ARITHMETIC_BIT,
    "ballot": VK_SUBGROUP_FEATURE_BALLOT_BIT,
    "shuffle": VK_SUBGROUP_FEATURE_SHUFFLE_BIT,
    "shuffle_relative": VK_SUBGROUP_FEATURE_SHUFFLE_RELATIVE_BIT,
    "clustered": VK_SUBGROUP_FEATURE_CLUSTERED_BIT,
}

COMPONENT_TYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64"]
COMPONENT_TYPES += ["uint8", "uint16", "uint32", "uint64"]
"""Component types in the order of ``VkComponentTypeKHR``."""


class FeatureChain:
    """The wanted features of a physical device as a chain of structures for ``vkCreateDevice``.

    Attributes:
        names: Pumice's names of the features.
        extensions: extensions to enable.
        head: first structure of the chain.
    """

    def __init__(self, physical: int, api_version: int, extensions: set[str]) -> None:
        self.names: set[str] = set()
        self.head = VkPhysicalDeviceFeatures2()
        items = [item for item in STRUCTS if api_version >= item.version or item.extension in extensions]
        self.extensions = [item.extension for item in items if api_version < item.version]
        structs = [self.head.chain(item.kind) for item in items]
        lib.vkGetPhysicalDeviceFeatures2(physical, ctypes.byref(self.head))
        self._keep(self.head.features, CORE)
        for item, struct in zip(items, structs, strict=True):
            self._keep(struct, item.fields)

    def _keep(self, struct: Structure, fields: dict[str, str]) -> None:
        """Enable the wanted features that are present and clear the others, since unused features may cost speed."""
        for field, *_ in struct._fields_:
            if field in fields and getattr(struct, field):
                self.names.add(fields[field])
            elif field not in ("sType", "pNext"):
                setattr(struct, field, 0)


def subgroup_features(properties: VkPhysicalDeviceSubgroupProperties) -> set[str]:
    """Return the names of the subgroup operations in a ``VkPhysicalDeviceSubgroupProperties``."""
    if not properties.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT:
        return set()
    return {f"subgroup_{name}" for name, bit in SUBGROUP_OPERATIONS.items() if properties.supportedOperations & bit}


def matrix_shapes(instance: int, physical: int) -> tuple[MatrixShape, ...]:
    """Return the cooperative matrix shapes of a subgroup with equal types of A and B, and of C and the result."""
    function = extension_function(lib, instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR")
    if function is None:
        return ()
    properties = listed(
        lambda count, found: function(physical, count, found), VkCooperativeMatrixPropertiesKHR, "listing matrix shapes"
    )
    return tuple(
        MatrixShape(item.MSize, item.NSize, item.KSize, COMPONENT_TYPES[item.AType], COMPONENT_TYPES[item.CType])
        for item in properties
        if item.scope == VK_SCOPE_SUBGROUP_KHR
        and item.AType == item.BType
        and item.CType == item.ResultType
        and not item.saturatingAccumulation
        and max(item.AType, item.CType) < len(COMPONENT_TYPES)
    )
