"""Float16 to float32 and back: by the processor's instructions, or with integers where it has none.

Values are one number or a vector of them.
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
    """A float16 shifted to the place of a float32's bits is too small by 2^112, also where it is subnormal."""
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
    """Rounded to nearest, ties to even."""
    if isa.name != "plain":
        return builder.fptrunc(value, _like(value, F16))
    i32, f32 = _like(value, I32), _like(value, F32)
    bits = builder.bitcast(value, i32)
    sign = builder.and_(bits, _number(i32, 0x80000000))
    magnitude = builder.xor(bits, sign)
    odd = builder.and_(builder.lshr(magnitude, _number(i32, 13)), _number(i32, 1))
    rounded = builder.add(builder.add(magnitude, _number(i32, 0xC8000FFF)), odd)  # exponent less 112, and half a unit
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
    """A type of this element with as many lanes as the value."""
    return ir.VectorType(element, value.type.count) if isinstance(value.type, ir.VectorType) else element


def _number(type: Any, value: Any) -> Any:
    return constant(type, value) if isinstance(type, ir.VectorType) else type(value)
