"""What a kernel's push constants are called, and how they are packed. They are declared in GLSL alone:
``tools/compile_shaders.py`` finds them there and writes ``interfaces.json`` beside the SPIR-V.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pumice_vulkan.device.spirv import instructions

Numbers = int | float | Sequence[int] | Sequence[float]

CODES = {"uint": "I", "float": "f"}  # of GLSL's types, for ``struct``; all take four bytes
PLACE = "_at"  # ends the names of word offsets of buffers

# SPIR-V 1.6 specification, 3.32 (storage classes and decorations) and 3.56 (instructions)
OP_MEMBER_NAME, OP_TYPE_INT, OP_TYPE_FLOAT, OP_TYPE_ARRAY, OP_TYPE_STRUCT = 6, 21, 22, 28, 30
OP_TYPE_POINTER, OP_CONSTANT, OP_MEMBER_DECORATE = 32, 43, 72
PUSH_CONSTANT, OFFSET = 9, 35


@dataclass(frozen=True)
class Parameter:
    """A push constant, or an array of them."""

    name: str
    type: str
    offset: int  # bytes
    count: int | None = None  # of an array

    @classmethod
    def parse(cls, name: str, type: str, offset: int) -> Parameter:
        """From a row of ``interfaces.json``, whose types are written as ``uint`` or ``uint[3]``."""
        base, _, count = type.removesuffix("]").partition("[")
        return cls(name, base, offset, int(count) if count else None)

    @property
    def row(self) -> tuple[str, str, int]:
        return self.name, self.type if self.count is None else f"{self.type}[{self.count}]", self.offset

    @property
    def n_bytes(self) -> int:
        return 4 * (self.count or 1)


@dataclass(frozen=True)
class Interface:
    """The push constants of a kernel, in their order."""

    kernel: str
    parameters: tuple[Parameter, ...]

    @property
    def n_bytes(self) -> int:
        return max((each.offset + each.n_bytes for each in self.parameters), default=0)

    @property
    def places(self) -> list[str]:
        """``x`` for a parameter ``x_at``: the names of buffers, in the order of their bindings."""
        return [each.name.removesuffix(PLACE) for each in self.parameters if each.name.endswith(PLACE)]

    def pack(self, **values: Numbers) -> bytes:
        """The bytes of all parameters. Raises ValueError for one that is missing, unknown or of another type."""
        self.check(values)
        packed = bytearray(self.n_bytes)
        for each in self.parameters:
            found = values[each.name]
            numbers = list(found) if isinstance(found, Sequence) else [found]
            if len(numbers) != (each.count or 1) or isinstance(found, Sequence) != (each.count is not None):
                raise ValueError(f"{self.kernel}: {each.name} is {found!r}, the shader declares {each.row[1]}")
            for index, number in enumerate(numbers):
                if each.type == "uint":
                    if isinstance(number, float):
                        raise ValueError(f"{self.kernel}: {each.name} is {number!r}, the shader declares {each.type}")
                    number &= 0xFFFFFFFF
                struct.pack_into(f"<{CODES[each.type]}", packed, each.offset + 4 * index, number)
        return bytes(packed)

    def check(self, names: Mapping[str, object]) -> None:
        declared = {each.name for each in self.parameters}
        if declared != names.keys():
            wrong = {"missing": declared - names.keys(), "unknown": names.keys() - declared}
            listed = "; ".join(f"{word}: {', '.join(sorted(found))}" for word, found in wrong.items() if found)
            raise ValueError(f"parameters of the shader {self.kernel}: {listed}")


def push_constants(spirv: bytes) -> list[Parameter]:
    """What a SPIR-V module declares, in its order; with empty names where they are stripped, as by optimization."""
    names: dict[tuple[int, int], str] = {}
    offsets: dict[tuple[int, int], int] = {}
    types: dict[int, tuple[str, int | None]] = {}
    numbers: dict[int, int] = {}
    members: dict[int, tuple[int, ...]] = {}
    block = None
    for opcode, words in instructions(spirv):
        if opcode == OP_MEMBER_NAME:
            names[words[0], words[1]] = struct.pack(f"<{len(words) - 2}I", *words[2:]).split(b"\0")[0].decode()
        elif opcode == OP_MEMBER_DECORATE and words[2] == OFFSET:
            offsets[words[0], words[1]] = words[3]
        elif opcode == OP_TYPE_INT:
            types[words[0]] = "int" if words[2] else "uint", None
        elif opcode == OP_TYPE_FLOAT:
            types[words[0]] = "float", None
        elif opcode == OP_CONSTANT:
            numbers[words[1]] = words[2]
        elif opcode == OP_TYPE_ARRAY and words[1] in types and words[2] in numbers:
            types[words[0]] = types[words[1]][0], numbers[words[2]]
        elif opcode == OP_TYPE_STRUCT:
            members[words[0]] = words[1:]
        elif opcode == OP_TYPE_POINTER and words[1] == PUSH_CONSTANT and words[2] in members:
            block = words[2]
    if block is None:
        return []
    found = []
    for index, member in enumerate(members[block]):
        name, (base, count) = names.get((block, index), ""), types.get(member, ("another type", None))
        if base not in CODES:
            raise ValueError(f"the push constant {name or index} is a {base}; kernels take {' and '.join(CODES)} alone")
        found.append(Parameter(name, base, offsets[block, index], count))
    return found
