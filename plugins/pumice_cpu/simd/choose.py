"""Selection per lane: comparisons of two vectors give masks, and masks select lanes."""

from __future__ import annotations

import operator
from typing import Any

import llvmlite.ir as ir
from numba import types

from pumice_cpu.simd.arithmetic import fold
from pumice_cpu.simd.define import call, constant, define_operator, operation, splat
from pumice_cpu.simd.types import I32, f32x16, i32x16, mask16

for _symbol, _name in (
    (operator.lt, "<"),
    (operator.gt, ">"),
    (operator.le, "<="),
    (operator.ge, ">="),
    (operator.eq, "=="),
):
    define_operator(
        _symbol, mask16, (f32x16, f32x16), lambda builder, a, b, name=_name: builder.fcmp_ordered(name, a, b)
    )
define_operator(operator.ne, mask16, (i32x16, i32x16), lambda builder, a, b: builder.icmp_signed("!=", a, b))
define_operator(operator.and_, mask16, (mask16, mask16), lambda builder, a, b: builder.and_(a, b))


@operation(f32x16, mask16, f32x16, f32x16)
def choose_f32(builder: Any, mask: Any, a: Any, b: Any) -> Any:
    """Select lanes of ``a`` where the mask is set, of ``b`` elsewhere."""
    return builder.select(mask, a, b)


@operation(i32x16, mask16, i32x16, i32x16)
def choose_i32(builder: Any, mask: Any, a: Any, b: Any) -> Any:
    """Select lanes of ``a`` where the mask is set, of ``b`` elsewhere."""
    return builder.select(mask, a, b)


@operation(types.boolean, mask16)
def any_lane(builder: Any, mask: Any) -> Any:
    bits = builder.bitcast(mask, ir.IntType(16))
    return builder.zext(builder.icmp_unsigned("!=", bits, bits.type(0)), ir.IntType(1))


@operation(i32x16, i32x16, types.int32, types.int32)
def clamp_i32(builder: Any, a: Any, low: Any, high: Any) -> Any:
    """Clamp each lane between ``low`` and ``high``."""
    low, high = splat(builder, low, a.type), splat(builder, high, a.type)
    a = builder.select(builder.icmp_signed("<", a, low), low, a)
    return builder.select(builder.icmp_signed(">", a, high), high, a)


@operation(i32x16, f32x16)
def nearest_i32(builder: Any, a: Any) -> Any:
    """Round numbers below 2^22 to the nearest integers, ties to even. Larger numbers give the same result as in ggml.

    Adding 1.5 * 2^23 leaves the integer in the low bits of the sum.
    """
    bits = builder.bitcast(builder.fadd(a, constant(a.type, 12582912.0)), i32x16.llvm)
    return builder.sub(builder.and_(bits, constant(bits.type, 0x7FFFFF)), constant(bits.type, 0x400000))


@operation(i32x16, f32x16)
def as_i32(builder: Any, a: Any) -> Any:
    """Reinterpret the bits as int32."""
    return builder.bitcast(a, i32x16.llvm)


@operation(types.int32, i32x16, types.int64)
def lane_i32(builder: Any, a: Any, index: Any) -> Any:
    return builder.extract_element(a, index)


@operation(types.int32, types.float32)
def nearest(builder: Any, a: Any) -> Any:
    """Like ``nearest_i32``, for one number."""
    bits = builder.bitcast(builder.fadd(a, a.type(12582912.0)), I32)
    return builder.sub(builder.and_(bits, I32(0x7FFFFF)), I32(0x400000))


@operation(i32x16, f32x16)
def truncate_any(builder: Any, a: Any) -> Any:
    """Round to integers towards zero; numbers outside of int32 become the lowest int32, as on x86."""
    return _truncate(builder, a)


@operation(i32x16, f32x16)
def round_away(builder: Any, a: Any) -> Any:
    """Round to the nearest integers, ties away from zero; numbers outside of int32 become the lowest int32."""
    whole = _truncate(builder, a)
    rest = builder.fsub(a, builder.sitofp(whole, a.type))
    up = builder.zext(builder.fcmp_ordered(">=", rest, constant(a.type, 0.5)), whole.type)
    down = builder.zext(builder.fcmp_ordered("<=", rest, constant(a.type, -0.5)), whole.type)
    return builder.select(_is_i32(builder, a), builder.sub(builder.add(whole, up), down), whole)


def _truncate(builder: Any, a: Any) -> Any:
    lowest = constant(i32x16.llvm, -(2**31))
    return builder.select(_is_i32(builder, a), builder.fptosi(a, i32x16.llvm), lowest)


def _is_i32(builder: Any, a: Any) -> Any:
    magnitude = call(builder, "llvm.fabs.v16f32", a.type, a)
    return builder.fcmp_ordered("<", magnitude, constant(a.type, 2.0**31))


@operation(i32x16, mask16)
def ones(builder: Any, mask: Any) -> Any:
    """Return 1 in each lane where the mask is set, 0 elsewhere."""
    return builder.zext(mask, i32x16.llvm)


@operation(types.int32, types.float32)
def f32_bits(builder: Any, a: Any) -> Any:
    """Return the bits of a number as an integer."""
    return builder.bitcast(a, I32)


@operation(types.int64, mask16)
def first_lane(builder: Any, mask: Any) -> Any:
    """Return the number of the first lane where the mask is set; 16 if there is none."""
    bits = builder.zext(builder.bitcast(mask, ir.IntType(16)), I32)
    count = call(builder, "llvm.cttz.i32", I32, builder.or_(bits, I32(1 << 16)), ir.IntType(1)(0))
    return builder.zext(count, ir.IntType(64))


@operation(types.float32, f32x16)
def min_lanes(builder: Any, a: Any) -> Any:
    return fold(builder, a, lambda x, y: builder.select(builder.fcmp_ordered("<", x, y), x, y))
