"""Validation of shaders before a driver sees them, since drivers may crash on invalid code."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator

from pumice.plugin import BackendError
from pumice_vulkan.device.contract import version

MAGIC = 0x07230203
OP_EXTENSION, OP_CAPABILITY, OP_ENTRY_POINT = 10, 17, 15
GL_COMPUTE = 5

# Capability -> required feature of the device (SPIR-V 1.6 specification, 3.31).
CAPABILITIES = {
    9: "float16",
    11: "int64",
    22: "int16",
    39: "int8",
    62: "subgroup_vote",
    63: "subgroup_arithmetic",
    64: "subgroup_ballot",
    65: "subgroup_shuffle",
    66: "subgroup_shuffle_relative",
    67: "subgroup_clustered",
    4433: "storage16",
    4448: "storage8",
    5345: "vulkan_memory_model",
    5346: "vulkan_memory_model_device",
    5347: "buffer_address",
    6016: "integer_dot_product",
    6017: "integer_dot_product",
    6018: "integer_dot_product",
    6019: "integer_dot_product",
    6022: "cooperative_matrix",
}

# Extension -> required feature; empty: part of Vulkan 1.1, which every device has.
EXTENSIONS = {
    "SPV_KHR_16bit_storage": "storage16",
    "SPV_KHR_8bit_storage": "storage8",
    "SPV_KHR_cooperative_matrix": "cooperative_matrix",
    "SPV_KHR_physical_storage_buffer": "buffer_address",
    "SPV_KHR_integer_dot_product": "integer_dot_product",
    "SPV_KHR_storage_buffer_storage_class": "",
    "SPV_KHR_vulkan_memory_model": "vulkan_memory_model",
}

# Least version of Vulkan for a version of SPIR-V (Vulkan 1.3 specification, appendix A); older ones need 1.1.
VERSIONS = {(1, 4): (1, 2), (1, 5): (1, 2), (1, 6): (1, 3)}
NEWEST = (1, 6)


@functools.cache
def check_shader(spirv: bytes, features: frozenset[str], api_version: str = "1.3") -> None:
    """Raise BackendError unless the code is a complete SPIR-V compute shader that needs only what a device has."""
    has_entry_point = False
    for opcode, operands in instructions(spirv):
        if opcode == OP_CAPABILITY:
            needed = CAPABILITIES.get(operands[0])
            if needed is not None and needed not in features:
                raise BackendError(f"vulkan: the shader needs {needed}, which the device does not have")
        elif opcode == OP_EXTENSION:
            name = struct.pack(f"<{len(operands)}I", *operands).rstrip(b"\0").decode("utf-8", "replace")
            needed = EXTENSIONS.get(name, name)
            if needed and needed not in features:
                raise BackendError(f"vulkan: the shader needs {name}, which the device does not have")
        elif opcode == OP_ENTRY_POINT:
            has_entry_point = has_entry_point or operands[0] == GL_COMPUTE
    if not has_entry_point:
        raise BackendError("vulkan: the shader has no compute entry point")

    _check_version(spirv, api_version)


def _check_version(spirv: bytes, api_version: str) -> None:
    """Compare the version of a module with that of the device, as "1.3.280"."""
    _, minor, major, _ = spirv[4:8]
    least = VERSIONS.get((major, minor), (1, 1))
    if version(api_version) < least or (major, minor) > NEWEST:
        what = f"the shader is SPIR-V {major}.{minor}, which Vulkan {api_version} lacks"
        raise BackendError(f"vulkan: {what}; update the graphics driver")


def instructions(spirv: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield opcode and operand words of each instruction. Raises BackendError for an incomplete module."""
    if len(spirv) < 20 or len(spirv) % 4 or struct.unpack_from("<I", spirv)[0] != MAGIC:
        raise BackendError("vulkan: the shader is not SPIR-V")
    words = struct.unpack(f"<{len(spirv) // 4}I", spirv)
    position = 5
    while position < len(words):
        count, opcode = words[position] >> 16, words[position] & 0xFFFF
        if not count or position + count > len(words):
            raise BackendError(f"vulkan: the shader's SPIR-V is invalid at word {position}")
        yield opcode, words[position + 1 : position + count]
        position += count
