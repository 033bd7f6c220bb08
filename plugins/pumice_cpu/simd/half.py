"""Conversion between float16 and float32: by the processor's instructions, or by integer arithmetic without them.

Values are scalars or vectors.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir

from pumice_cpu.isa import Isa
from pumice_cpu.simd.define import constant, of_set
from pumice_cpu.simd.types import F16, F32, I16, I32

_HALVES, _FLOATS = ir.VectorType(F16, 16), ir.VectorType(F32, 16)


@of_set((F32, F16), (_FLOATS, _HALVES))
def half_to_float(isa: Isa, builder: Any, half: Any) -> Any:
    """Convert by a shift: the bits, as float32, are too small by a factor of 2^112, also for subnormals."""
    if isa.name != "plain":
        return builder.fpext(half, _like(half, F32))
    i32, f32 = _like(half, I32), _like(half, F32)
    bits = builder.zext(builder.bitcast(half, _like(half, I16)), i32)
    sign = builder.shl(builder.and_(bits, _number(i32, 0x8000)), _number(i32, 16))
    moved = builder.shl(builder.and_(bits, _number(i32, 0x7FFF)), _number(i32, 13))
    finite = builder.fmul(builder.bitcast(moved, f32), _number(f32, 2.0**112))
    infinite = builder.icmp_unsigned(">=", moved, _number(i32, 0x7C00 << 13))
    endless = builder.or_(moved, _number(i32, 0x7F800000))
    magnitude = builder.select(infinite, endless, builder.bitcast(finite, i32))
    return builder.bitcast(builder.or_(magnitude, sign), f32)


@of_set((F16, F32), (_HALVES, _FLOATS))
def float_to_half(isa: Isa, builder: Any, value: Any) -> Any:
    """Round to nearest, ties to even."""
    if isa.name != "plain":
        return builder.fptrunc(value, _like(value, F16))
    i32, f32 = _like(value, I32), _like(value, F32)
    bits = builder.bitcast(value, i32)
    sign = builder.and_(bits, _number(i32, 0x80000000))
    magnitude = builder.xor(bits, sign)
    odd = builder.and_(builder.lshr(magnitude, _number(i32, 13)), _number(i32, 1))
    # Subtracts 112 from the exponent and adds half a unit.
    rounded = builder.add(builder.add(magnitude, _number(i32, 0xC8000FFF)), odd)
    normal = builder.lshr(rounded, _number(i32, 13))
    # a subnormal float16 is a multiple of 2^-24, which is the unit of float32 numbers at 1/2
    at_half = builder.fadd(builder.bitcast(magnitude, f32), _number(f32, 0.5))
    subnormal = builder.sub(builder.bitcast(at_half, i32), _number(i32, 0x3F000000))
    small = builder.icmp_unsigned("<", magnitude, _number(i32, 0x38800000))
    large = builder.icmp_unsigned(">=", magnitude, _number(i32, 0x47800000))
    not_a_number = builder.icmp_unsigned(">", magnitude, _number(i32, 0x7F800000))
    endless = builder.select(not_a_number, _number(i32, 0x7E00), _number(i32, 0x7C00))
    result = builder.select(large, endless, builder.select(small, subnormal, normal))
    result = builder.or_(result, builder.lshr(sign, _number(i32, 16)))
    return builder.bitcast(builder.trunc(result, _like(value, I16)), _like(value, F16))


def _like(value: Any, element: Any) -> Any:
    """Return a type with this element and the value's number of lanes."""
    return ir.VectorType(element, value.type.count) if isinstance(value.type, ir.VectorType) else element


def _number(type: Any, value: Any) -> Any:
    return constant(type, value) if isinstance(type, ir.VectorType) else type(value)
