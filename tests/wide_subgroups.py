"""Subgroups of 32, 64 or 128 lanes on lavapipe, whose own have 4 to 16: SPIR-V rewritten to exchange in shared memory.

Neighbouring invocations of a workgroup are the lanes of a subgroup. Each lane writes its value to a word of shared
memory of its own, and reads those of the other lanes between two barriers of the workgroup. So all subgroups of a
workgroup must execute the same operations, which the kernels do, save for exchanges among eight neighbouring lanes
(shaders/quantize.glsl): these stay the device's own. Kernels on matrix units and the persistent ones, whose
workgroups wait for each other, are not rewritten.
"""

import functools
import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from pumice_vulkan.device import DeviceDescription
from pumice_vulkan.device.spirv import instructions
from pumice_vulkan.profiles import SIZES
from pumice_vulkan.shaders import rolled

OCTETS = ("quantize", "matvec_int8")  # kernels that exchange among eight neighbouring lanes only
MOST_INVOCATIONS = 1024  # of a workgroup

# Opcodes, decorations and numbers of the SPIR-V 1.6 specification.
EXTENSION, ENTRY_POINT, TYPE_INT, TYPE_FLOAT, TYPE_VECTOR = 10, 15, 21, 22, 23
TYPE_ARRAY, TYPE_POINTER, CONSTANT, FUNCTION, VARIABLE = 28, 32, 43, 54, 59
LOAD, STORE, ACCESS_CHAIN, DECORATE, CONSTRUCT, EXTRACT = 61, 62, 65, 71, 80, 81
COPY, BITCAST, I_ADD, F_ADD, I_MUL, SHIFT_RIGHT, XOR, AND = 83, 124, 128, 129, 132, 194, 198, 199
SELECT, I_EQUAL, U_LESS, F_ORD_GREATER, BARRIER = 169, 170, 176, 186, 224
ELECT, ANY, SHUFFLE_XOR, SUM, U_MIN, F_MAX = 333, 335, 346, 350, 354, 358
BUILT_IN, WORKGROUP_SIZE, LOCAL_INDEX = 11, 25, 29
SIZE, COUNT, SUBGROUP, LANE = 36, 38, 40, 41  # BuiltIns
INPUT, WORKGROUP = 1, 4  # storage classes
SCOPE, ACQUIRE_RELEASE_OF_WORKGROUP = 2, 0x108


class Module:
    """A SPIR-V module whose subgroups become ``size`` lanes."""

    def __init__(self, code: bytes, size: int, own_exchanges: bool) -> None:
        self.size, self.own_exchanges = size, own_exchanges
        self.header = list(struct.unpack_from("<5I", code))
        self.parts = [(opcode, list(words)) for opcode, words in instructions(code)]
        self.built_ins = {words[2]: words[0] for op, words in self.parts if op == DECORATE and words[1] == BUILT_IN}
        self.types = {words[0]: (opcode, words[1:]) for opcode, words in self.parts if opcode in (21, 22, 23)}
        self.globals: list[tuple[int, list[int]]] = []
        self.decorations: list[tuple[int, list[int]]] = []
        self.code: list[tuple[int, list[int]]] = []

    def new(self) -> int:
        self.header[3] += 1
        return self.header[3] - 1

    def type(self, opcode: int, *operands: int) -> int:
        """Return the id of a scalar type, which a module declares once."""
        declared = (name for name, (op, words) in self.types.items() if (op, words) == (opcode, list(operands)))
        if (name := next(declared, 0)) == 0:
            name = self.new()
            self.types[name] = opcode, list(operands)
            self.globals.append((opcode, [name, *operands]))
        return name

    def constant(self, value: int) -> int:
        name = self.new()
        self.globals.append((CONSTANT, [self.uint, name, value]))
        return name

    def emit(self, opcode: int, type: int, *operands: int) -> int:
        """Append an instruction with a result, and return its id."""
        name = self.new()
        self.code.append((opcode, [type, name, *operands]))
        return name

    def rewritten(self) -> bytes:
        """Return the module's code."""
        self._declare()
        for opcode, words in self.parts:
            self._rewrite(opcode, words)
        body = self._with_declarations()
        words = itertools.chain(self.header, *([len(rest) + 1 << 16 | opcode, *rest] for opcode, rest in body))
        return struct.pack(f"<{sum(len(rest) + 1 for _, rest in body) + 5}I", *words)

    def _declare(self) -> None:
        self.uint, self.float = self.type(TYPE_INT, 32, 0), self.type(TYPE_FLOAT, 32)
        self.bool = next((words[0] for opcode, words in self.parts if opcode == 20), 0)
        if not self.bool:
            self.bool = self.new()
            self.globals.append((20, [self.bool]))
        if LOCAL_INDEX not in self.built_ins:
            pointer, self.built_ins[LOCAL_INDEX] = self.new(), self.new()
            self.globals.append((TYPE_POINTER, [pointer, INPUT, self.uint]))
            self.globals.append((VARIABLE, [pointer, self.built_ins[LOCAL_INDEX], INPUT]))
            self.decorations.append((DECORATE, [self.built_ins[LOCAL_INDEX], BUILT_IN, LOCAL_INDEX]))
            self.interface = [self.built_ins[LOCAL_INDEX]]
        else:
            self.interface = []
        array, pointer, self.word, self.shared = self.new(), self.new(), self.new(), self.new()
        self.globals.append((TYPE_ARRAY, [array, self.uint, self.constant(MOST_INVOCATIONS)]))
        self.globals.append((TYPE_POINTER, [pointer, WORKGROUP, array]))
        self.globals.append((TYPE_POINTER, [self.word, WORKGROUP, self.uint]))
        self.globals.append((VARIABLE, [pointer, self.shared, WORKGROUP]))
        self.interface += [self.shared] if self.header[1] >= 0x10400 else []
        self.numbers = functools.cache(self.constant)

    def _with_declarations(self) -> list[tuple[int, list[int]]]:
        """Return the instructions with the new declarations where the order of a module has them."""
        body: list[tuple[int, list[int]]] = []
        rest = iter(self.code)
        is_declared = False
        for opcode, words in rest:
            if opcode == ENTRY_POINT:
                words = [*words, *self.interface]
            if opcode in range(19, 40) and not is_declared:  # the first type
                body += self.decorations
                is_declared = True
            if opcode == FUNCTION:
                body += [*self.globals, (opcode, words), *rest]
                break
            body.append((opcode, words))
        return body

    def _rewrite(self, opcode: int, words: list[int]) -> None:
        """Append an instruction, or what computes its result without the device's subgroups."""
        by_variable = {self.built_ins.get(built_in): built_in for built_in in (SIZE, COUNT, SUBGROUP, LANE)}
        if opcode == LOAD and words[2] in by_variable:
            self._copy(words, self._built_in(by_variable[words[2]]))
        elif opcode == ELECT:
            lane = self._built_in(LANE)
            self.code.append((I_EQUAL, [words[0], words[1], lane, self.numbers(0)]))
        elif opcode == SHUFFLE_XOR and not self.own_exchanges:
            index = self.emit(XOR, self.uint, self._index(), words[4])
            self._copy(words, self._exchanged(words[0], words[3], lambda type: self._read(type, index)))
        elif opcode in (SUM, U_MIN, F_MAX):
            assert words[3] == 0, "only reductions are rewritten"
            self._copy(words, self._exchanged(words[0], words[4], lambda type: self._reduced(opcode, type)))
        else:
            assert opcode not in range(ELECT, 367) or opcode == SHUFFLE_XOR, f"opcode {opcode} is not rewritten"
            self.code.append((opcode, words))

    def _copy(self, words: Sequence[int], value: int) -> None:
        self.code.append((COPY, [words[0], words[1], value]))

    def _index(self) -> int:
        return self.emit(LOAD, self.uint, self.built_ins[LOCAL_INDEX])

    def _threads(self) -> int:
        """Return the id of the number of invocations of the workgroup."""
        size = self.built_ins[WORKGROUP_SIZE]
        x, y, z = (self.emit(EXTRACT, self.uint, size, axis) for axis in range(3))
        return self.emit(I_MUL, self.uint, self.emit(I_MUL, self.uint, x, y), z)

    def _built_in(self, built_in: int) -> int:
        shift = self.numbers(self.size.bit_length() - 1)
        if built_in == SIZE:
            return self.numbers(self.size)
        if built_in == COUNT:
            rounded = self.emit(I_ADD, self.uint, self._threads(), self.numbers(self.size - 1))
            return self.emit(SHIFT_RIGHT, self.uint, rounded, shift)
        if built_in == SUBGROUP:
            return self.emit(SHIFT_RIGHT, self.uint, self._index(), shift)
        return self.emit(AND, self.uint, self._index(), self.numbers(self.size - 1))

    def _exchanged(self, type: int, value: int, read: Callable[[int], int]) -> int:
        """Return the result of ``read`` while the words of all lanes have their value, number by number of a vector."""
        opcode, words = self.types[type]
        if opcode != TYPE_VECTOR:
            return self._through_memory(type, value, read)
        scalar, n = words
        parts = [self.emit(EXTRACT, scalar, value, i) for i in range(n)]
        return self.emit(CONSTRUCT, type, *(self._through_memory(scalar, part, read) for part in parts))

    def _through_memory(self, type: int, value: int, read: Callable[[int], int]) -> int:
        word = value if type == self.uint else self.emit(BITCAST, self.uint, value)
        place = self.emit(ACCESS_CHAIN, self.word, self.shared, self._index())
        self.code.append((STORE, [place, word]))
        self._wait()
        result = read(type)
        self._wait()
        return result

    def _wait(self) -> None:
        scope, semantics = self.numbers(SCOPE), self.numbers(ACQUIRE_RELEASE_OF_WORKGROUP)
        self.code.append((BARRIER, [scope, scope, semantics]))

    def _read(self, type: int, index: int) -> int:
        word = self.emit(LOAD, self.uint, self.emit(ACCESS_CHAIN, self.word, self.shared, index))
        return word if type == self.uint else self.emit(BITCAST, type, word)

    def _reduced(self, opcode: int, type: int) -> int:
        """Return the sum, least or largest of a subgroup's words; a last one may have fewer lanes."""
        first = self.emit(AND, self.uint, self._index(), self.numbers(-self.size & 0xFFFFFFFF))
        threads, result = self._threads(), self._read(type, first)
        for i in range(1, self.size):
            index = self.emit(I_ADD, self.uint, first, self.numbers(i))
            is_there = self.emit(U_LESS, self.bool, index, threads)
            value = self._read(type, self.emit(SELECT, self.uint, is_there, index, first))
            if opcode == SUM:
                zero = self.emit(BITCAST, type, self.numbers(0))
                result = self.emit(F_ADD, type, result, self.emit(SELECT, type, is_there, value, zero))
            else:
                compare = U_LESS if opcode == U_MIN else F_ORD_GREATER
                is_better = self.emit(compare, self.bool, value, result)
                result = self.emit(SELECT, type, is_better, value, result)
        return result


@functools.cache
def widened(name: str, size: int) -> bytes:
    """Return a kernel's SPIR-V with subgroups of ``size`` lanes, without unrolled loops."""
    code = rolled(name)
    uses = {opcode for opcode, _ in instructions(code)} & set(range(ELECT, 367))
    built_ins = {words[2] for opcode, words in instructions(code) if opcode == DECORATE and words[1] == BUILT_IN}
    return (
        Module(code, size, name.startswith(OCTETS)).rewritten()
        if uses or built_ins & {SIZE, COUNT, SUBGROUP, LANE}
        else code
    )


@contextmanager
def subgroups_of(size: int) -> Iterator[None]:
    """Let the native driver's devices have subgroups of ``size`` lanes, and compile kernels for them."""
    from pumice_vulkan.device.native.instance import PhysicalDevice  # needs a Vulkan loader

    describe = PhysicalDevice.describe

    def described(physical: PhysicalDevice, index: int) -> DeviceDescription:
        device = describe(physical, index)
        return replace(
            device,
            subgroup_size=size,
            subgroup_sizes=(size, size),
            threadgroup_memory_bytes=device.threadgroup_memory_bytes - 4 * MOST_INVOCATIONS,
            features=device.features - SIZES,
        )

    with (
        mock.patch.object(PhysicalDevice, "describe", described),
        mock.patch("pumice_vulkan.kernels.code_of", lambda name, avoided: widened(name, size)),
    ):
        yield
