"""A pipeline's use of a device's limits, computed from SPIR-V and specialization constants.

SPIR-V 1.6 specification, 3.49 (instructions), 3.20 (decorations), 3.21 (built-ins); sizes as in GLSL's std430 layout.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pumice_vulkan.device.spirv import instructions

BOOL, INT, FLOAT, VECTOR, ARRAY, STRUCT, POINTER = 20, 21, 22, 23, 28, 30, 32
EXECUTION_MODE, EXECUTION_MODE_ID = 16, 331
TRUE, FALSE, CONSTANT, COMPOSITE = (41, 48), (42, 49), (43, 50), (44, 51)
OPERATION, FUNCTION, VARIABLE, DECORATE = 52, 54, 59, 71
SPEC_ID, BUILT_IN, WORKGROUP_SIZE = 1, 11, 25
LOCAL_SIZE, LOCAL_SIZE_ID = 17, 38
WORKGROUP = 4  # storage class of shared memory
WORD = 0xFFFFFFFF

OPERATORS: dict[int, Callable[..., int]] = {
    128: operator.add,
    130: operator.sub,
    132: operator.mul,
    134: lambda a, b: a // b if b else 0,
    137: lambda a, b: a % b if b else 0,
    166: operator.or_,
    167: operator.and_,
    168: operator.not_,
    169: lambda which, a, b: a if which else b,
    170: operator.eq,
    171: operator.ne,
    172: operator.gt,
    174: operator.ge,
    176: operator.lt,
    178: operator.le,
    194: operator.rshift,
    196: operator.lshift,
    197: operator.or_,
    198: operator.xor,
    199: operator.and_,
}
"""Operations on unsigned constants, by their opcode."""


@dataclass(frozen=True)
class Resources:
    """Invocations of a workgroup, and its bytes of shared memory."""

    threads: int
    shared_bytes: int


@dataclass
class _Declarations:
    """The declarations of a module, before its functions; ``constants``: values of the specialization constants."""

    constants: Sequence[int]
    types: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    values: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    spec_ids: dict[int, int] = field(default_factory=dict)

    def value(self, name: int) -> int:
        """Return a constant. Raises ValueError for an unknown operation."""
        opcode, operands = self.values[name]
        number = self.spec_ids.get(name)
        if number is not None and number < len(self.constants):
            return self.constants[number] & WORD
        if opcode in TRUE or opcode in FALSE:
            return int(opcode in TRUE)
        if opcode in CONSTANT:
            return operands[0]
        if opcode != OPERATION or operands[0] not in OPERATORS:
            raise ValueError(f"the constant {name} is computed by the unknown operation {operands[:1]}")
        return int(OPERATORS[operands[0]](*map(self.value, operands[1:]))) & WORD

    def layout(self, name: int) -> tuple[int, int]:
        """Return the bytes and the alignment of a type."""
        opcode, operands = self.types[name]
        if opcode == BOOL:
            return 4, 4
        if opcode in (INT, FLOAT):
            return operands[0] // 8, operands[0] // 8
        if opcode == VECTOR:
            size, _ = self.layout(operands[0])
            return size * operands[1], size * (4 if operands[1] == 3 else operands[1])
        if opcode == ARRAY:
            size, alignment = self.layout(operands[0])
            return -(-size // alignment) * alignment * self.value(operands[1]), alignment
        end, most = 0, 1
        for size, alignment in map(self.layout, operands):
            end, most = -(-end // alignment) * alignment + size, max(most, alignment)
        return -(-end // most) * most, most


def resources(spirv: bytes, constants: Sequence[int]) -> Resources:
    """Return the shared memory and invocations of a pipeline. Raises BackendError for code that is not SPIR-V."""
    declarations = _Declarations(constants)
    shared: list[int] = []
    size: Sequence[int] = ()
    ids: Sequence[int] = ()
    for opcode, words in instructions(spirv):
        if opcode == FUNCTION:
            break
        if opcode == EXECUTION_MODE and words[1] == LOCAL_SIZE:
            size = words[2:]
        elif opcode == EXECUTION_MODE_ID and words[1] == LOCAL_SIZE_ID:
            ids = words[2:]
        elif opcode == DECORATE and words[1] == SPEC_ID:
            declarations.spec_ids[words[0]] = words[2]
        elif opcode == DECORATE and words[1:] == (BUILT_IN, WORKGROUP_SIZE):
            ids = (words[0],)
        elif opcode in (BOOL, INT, FLOAT, VECTOR, ARRAY, STRUCT, POINTER):
            declarations.types[words[0]] = opcode, words[1:]
        elif opcode == OPERATION or opcode in (*TRUE, *FALSE, *CONSTANT, *COMPOSITE):
            declarations.values[words[1]] = opcode, words[2:]
        elif opcode == VARIABLE and words[2] == WORKGROUP:
            shared.append(declarations.types[words[0]][1][1])
    return Resources(
        _product(declarations, ids) if ids else _times(size), sum(declarations.layout(name)[0] for name in shared)
    )


def _product(known: _Declarations, ids: Sequence[int]) -> int:
    """Return the product of constants, or of the parts of one."""
    parts = [part for name in ids for part in _parts(known.values, name)]
    return _times([known.value(part) for part in parts])


def _parts(values: Mapping[int, tuple[int, tuple[int, ...]]], name: int) -> Sequence[int]:
    opcode, operands = values[name]
    return operands if opcode in COMPOSITE else (name,)


def _times(numbers: Sequence[int]) -> int:
    product = 1
    for number in numbers:
        product *= number
    return product
