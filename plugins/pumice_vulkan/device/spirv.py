"""Validation of shaders before a driver sees them, since drivers may crash on invalid code."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator

from pumice.plugin import BackendError

MAGIC = 0x07230203
OP_CAPABILITY, OP_ENTRY_POINT = 17, 15
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
    6016: "integer_dot_product",
    6017: "integer_dot_product",
    6018: "integer_dot_product",
    6019: "integer_dot_product",
    6022: "cooperative_matrix",
}


@functools.cache
def check_shader(spirv: bytes, features: frozenset[str]) -> None:
    """Raise BackendError unless the code is a complete SPIR-V compute shader that needs only supported features."""
    has_entry_point = False
    for opcode, operands in instructions(spirv):
        if opcode == OP_CAPABILITY:
            needed = CAPABILITIES.get(operands[0])
            if needed is not None and needed not in features:
                raise BackendError(f"vulkan: the shader needs {needed}, which the device does not have")
        elif opcode == OP_ENTRY_POINT:
            has_entry_point = has_entry_point or operands[0] == GL_COMPUTE
    if not has_entry_point:
        raise BackendError("vulkan: the shader has no compute entry point")


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
