"""Vector types for Numba: 64 bytes wide, on any instruction set."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()


class Vector(types.Type):
    """A Numba type represented by one LLVM vector."""

    def __init__(self, name: str, llvm: ir.VectorType) -> None:
        self.llvm = llvm
        super().__init__(name=name)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.llvm)


f32x16 = Vector("f32x16", ir.VectorType(F32, 16))
i32x16 = Vector("i32x16", ir.VectorType(I32, 16))
mask16 = Vector("mask16", ir.VectorType(I1, 16))
u8x64 = Vector("u8x64", ir.VectorType(I8, 64))


class Registers(types.Type):
    """An array of vectors that LLVM keeps in registers once loops over it are unrolled."""

    def __init__(self, element: Vector, count: int) -> None:
        self.element, self.count = element, count
        super().__init__(name=f"registers({element.name}, {count})")


@register_model(Registers)
class _RegistersModel(models.PrimitiveModel):
    def __init__(self, manager: Any, registers: Registers) -> None:
        array = ir.ArrayType(registers.element.llvm, registers.count)
        super().__init__(manager, registers, array.as_pointer())


def _registers(element: Vector) -> Any:
    @intrinsic(prefer_literal=True)
    def make(typing: Any, count: Any) -> Any:
        registers = Registers(element, count.literal_value)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return cgutils.alloca_once(builder, ir.ArrayType(element.llvm, registers.count))

        return registers(count), generate

    return make


registers_f32 = _registers(f32x16)
registers_i32 = _registers(i32x16)
registers_u8 = _registers(u8x64)
