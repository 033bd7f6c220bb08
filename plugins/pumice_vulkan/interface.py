"""Names and packing of a kernel's push constants.

They are declared only in GLSL: ``tools/compile_shaders.py`` extracts them and writes ``interfaces.json`` next to the
SPIR-V.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pumice_vulkan.device.spirv import instructions

Numbers = int | float | Sequence[int] | Sequence[float]

CODES = {"uint": "I", "float": "f"}  # of GLSL's types, for ``struct``; each takes four bytes
WORD = 0xFFFFFFFF
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
    offset: int  # in bytes
    count: int | None = None  # length of an array

    @classmethod
    def parse(cls, name: str, type: str, offset: int) -> Parameter:
        """Parse a row of ``interfaces.json``, whose types are written as ``uint`` or ``uint[3]``."""
        base, _, count = type.removesuffix("]").partition("[")
        return cls(name, base, offset, int(count) if count else None)

    @property
    def row(self) -> tuple[str, str, int]:
        return self.name, self.type if self.count is None else f"{self.type}[{self.count}]", self.offset

    @property
    def n_bytes(self) -> int:
        return 4 * (self.count or 1)

    def takes(self, value: Numbers) -> bool:
        """Return True if a value has the declared type and count."""
        numbers = list(value) if isinstance(value, Sequence) else [value]
        fits = len(numbers) == (self.count or 1) and isinstance(value, Sequence) == (self.count is not None)
        return fits and (self.type != "uint" or not any(isinstance(number, float) for number in numbers))


@dataclass(frozen=True)
class Interface:
    """Names and order of a kernel's push constants."""

    kernel: str
    parameters: tuple[Parameter, ...]

    @functools.cached_property
    def n_bytes(self) -> int:
        return max((parameter.offset + parameter.n_bytes for parameter in self.parameters), default=0)

    @functools.cached_property
    def places(self) -> list[str]:
        """Return the names of buffers in the order of their bindings: ``x`` for a parameter ``x_at``."""
        names = [parameter.name for parameter in self.parameters]
        return [name.removesuffix(PLACE) for name in names if name.endswith(PLACE)]

    def pack(self, **values: Numbers) -> bytes:
        """Return the bytes of all parameters. Raises ValueError if one is missing, unknown or of another type."""
        if len(values) != len(self.parameters):
            self._refuse(values)
        numbers: list[Any] = []
        try:
            for name, is_uint, count in self._fields:
                value: Any = values[name]
                if count is None:
                    numbers.append(value & WORD if is_uint else value)
                    continue
                if len(value) != count:
                    self._refuse(values)
                numbers.extend([number & WORD for number in value] if is_uint else value)
            return self._layout.pack(*numbers)
        except (KeyError, TypeError, struct.error):
            self._refuse(values)

    def _refuse(self, values: Mapping[str, Numbers]) -> NoReturn:
        """Raise ValueError with the values that differ from the declaration."""
        declared = {parameter.name for parameter in self.parameters}
        if declared != values.keys():
            wrong = {"missing": declared - values.keys(), "unknown": values.keys() - declared}
            listed = "; ".join(f"{word}: {', '.join(sorted(names))}" for word, names in wrong.items() if names)
            raise ValueError(f"parameters of the shader {self.kernel}: {listed}")
        invalid = [parameter for parameter in self.parameters if not parameter.takes(values[parameter.name])]
        listed = "; ".join(
            f"{parameter.name} is {values[parameter.name]!r}, the shader declares {parameter.row[1]}"
            for parameter in invalid or self.parameters
        )
        raise ValueError(f"{self.kernel}: {listed}")

    @functools.cached_property
    def _ordered(self) -> list[Parameter]:
        return sorted(self.parameters, key=lambda parameter: parameter.offset)

    @functools.cached_property
    def _fields(self) -> list[tuple[str, bool, int | None]]:
        """Return (name, is uint, count) of each parameter, in the order of the bytes."""
        return [(parameter.name, parameter.type == "uint", parameter.count) for parameter in self._ordered]

    @functools.cached_property
    def _layout(self) -> struct.Struct:
        """Return the format of all parameters, with the padding between them."""
        codes, end = "<", 0
        for parameter in self._ordered:
            codes += f"{parameter.offset - end}x{parameter.count or 1}{CODES[parameter.type]}"
            end = parameter.offset + parameter.n_bytes
        return struct.Struct(codes)


def push_constants(spirv: bytes) -> list[Parameter]:
    """Return the declarations of a SPIR-V module in order; names are empty if stripped, as by optimization."""
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
    parameters = []
    for index, member in enumerate(members[block]):
        name, (base, count) = names.get((block, index), ""), types.get(member, ("another type", None))
        if base not in CODES:
            raise ValueError(f"the push constant {name or index} is a {base}; kernels take {' and '.join(CODES)} alone")
        parameters.append(Parameter(name, base, offsets[block, index], count))
    return parameters
