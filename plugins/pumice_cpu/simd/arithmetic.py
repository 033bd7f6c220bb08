"""Arithmetic on vectors. ``+ - * /`` work on two vectors of one type; the rest are functions."""

from __future__ import annotations

import operator
from typing import Any

import llvmlite.ir as ir
from numba import types

from pumice_cpu.isa import Isa
from pumice_cpu.simd.define import call, constant, define_operator, of_set, operation, pick, splat
from pumice_cpu.simd.types import F32, I1, I8, I16, I32, f32x16, i32x16, u8x64

# --- making and converting


@operation(f32x16, types.float32)
def splat_f32(builder: Any, value: Any) -> Any:
    return splat(builder, value, f32x16.llvm)


@operation(i32x16, types.int32)
def splat_i32(builder: Any, value: Any) -> Any:
    return splat(builder, value, i32x16.llvm)


@operation(f32x16, i32x16)
def to_f32(builder: Any, value: Any) -> Any:
    return builder.sitofp(value, f32x16.llvm)


@operation(i32x16, f32x16)
def round_to_i32(builder: Any, value: Any) -> Any:
    """Round to the nearest integers, ties to even."""
    return builder.fptosi(call(builder, "llvm.rint.v16f32", f32x16.llvm, value), i32x16.llvm)


@operation(i32x16, f32x16)
def truncate_to_i32(builder: Any, value: Any) -> Any:
    """Round to integers towards zero."""
    return builder.fptosi(value, i32x16.llvm)


@operation(f32x16, i32x16)
def as_f32(builder: Any, bits: Any) -> Any:
    """Reinterpret the bits as float32."""
    return builder.bitcast(bits, f32x16.llvm)


@operation(types.float32, types.int64)
def bits_f32(builder: Any, bits: Any) -> Any:
    """Return the float32 whose bits are the low half of an argument."""
    return builder.bitcast(builder.trunc(bits, I32), F32)


# --- two operands

_INSTRUCTIONS = {
    (operator.add, f32x16): "fadd",
    (operator.sub, f32x16): "fsub",
    (operator.mul, f32x16): "fmul",
    (operator.truediv, f32x16): "fdiv",
    (operator.add, i32x16): "add",
    (operator.sub, i32x16): "sub",
    (operator.mul, i32x16): "mul",
    (operator.and_, i32x16): "and_",
    (operator.or_, i32x16): "or_",
    (operator.and_, u8x64): "and_",
    (operator.or_, u8x64): "or_",
    (operator.xor, u8x64): "xor",
    (operator.add, u8x64): "add",
    (operator.sub, u8x64): "sub",
}

for (_symbol, _kind), _name in _INSTRUCTIONS.items():
    define_operator(_symbol, _kind, (_kind, _kind), lambda builder, a, b, name=_name: getattr(builder, name)(a, b))


@operation(f32x16, f32x16, f32x16, f32x16)
def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c``, with one rounding where the processor has FMA."""
    return _fma(builder, a, b, c)


@of_set((f32x16.llvm, f32x16.llvm, f32x16.llvm, f32x16.llvm))
def _fma(isa: Isa, builder: Any, a: Any, b: Any, c: Any) -> Any:
    if isa.name == "plain":  # the intrinsic would call a function per lane
        return builder.fadd(builder.fmul(a, b), c)
    return call(builder, "llvm.fma.v16f32", f32x16.llvm, a, b, c)


@operation(f32x16, f32x16, f32x16)
def maximum(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@operation(f32x16, f32x16, f32x16)
def minimum(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


@operation(f32x16, f32x16)
def absolute(builder: Any, a: Any) -> Any:
    return call(builder, "llvm.fabs.v16f32", f32x16.llvm, a)


@operation(f32x16, f32x16)
def square_root(builder: Any, a: Any) -> Any:
    return call(builder, "llvm.sqrt.v16f32", f32x16.llvm, a)


@operation(f32x16, f32x16)
def whole(builder: Any, a: Any) -> Any:
    """Return the nearest whole numbers, on a tie the even ones."""
    return call(builder, "llvm.rint.v16f32", f32x16.llvm, a)


@operation(f32x16, f32x16)
def exp(builder: Any, x: Any) -> Any:
    """Return e^x within 2 ULP: 2^n times a polynomial on [-ln2/2, ln2/2] (Cody and Waite 1980).

    The least result, for x from -87.336 down, is a normal number: Intel's processors take about 150 cycles for an
    operation whose result is subnormal.
    """
    vector = f32x16.llvm

    def number(value: float) -> Any:
        return constant(vector, value)

    x = builder.select(builder.fcmp_ordered("<", x, number(88.3762626647949)), x, number(88.3762626647949))
    x = builder.select(builder.fcmp_ordered(">", x, number(-87.33653)), x, number(-87.33653))
    n = call(builder, "llvm.rint.v16f32", vector, builder.fmul(x, number(1.44269504088896341)))
    r = _fma(builder, n, number(-0.693359375), x)
    r = _fma(builder, n, number(2.12194440e-4), r)
    polynomial = number(1 / 5040)
    for coefficient in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0):
        polynomial = _fma(builder, polynomial, r, number(coefficient))
    exponent = builder.shl(
        builder.add(builder.fptosi(n, i32x16.llvm), constant(i32x16.llvm, 127)), constant(i32x16.llvm, 23)
    )
    return builder.fmul(polynomial, builder.bitcast(exponent, vector))


@operation(f32x16, f32x16)
def power_of_two(builder: Any, x: Any) -> Any:
    """Return 2^x for -80 <= x <= 0 within 1 ULP, and 2^-80 for x below: a fit at Chebyshev nodes on [-1/2, 1/2].

    A weight of 2^-80 counts for nothing beside the highest, which is 1. Its products with values are normal numbers:
    Intel's processors take about 150 cycles for an operation whose result is subnormal.
    """
    vector, whole = f32x16.llvm, i32x16.llvm
    lowest = constant(vector, -80.0)
    x = builder.select(builder.fcmp_ordered(">", x, lowest), x, lowest)
    n = call(builder, "llvm.rint.v16f32", vector, x)
    r = builder.fsub(x, n)
    polynomial = constant(vector, 0.00015453162941980736)
    for coefficient in (0.0013390863364174759, 0.00961808255728395, 0.055503571142201544, 0.24022650760568132,
                        0.6931471880262287, 1.0):  # fmt: skip
        polynomial = _fma(builder, polynomial, r, constant(vector, coefficient))
    exponent = builder.shl(builder.fptosi(n, whole), constant(whole, 23))
    return builder.bitcast(builder.add(builder.bitcast(polynomial, whole), exponent), vector)


@operation(i32x16, i32x16, types.int32)
def shift_left_i32(builder: Any, a: Any, bits: Any) -> Any:
    return builder.shl(a, splat(builder, bits, i32x16.llvm))


@operation(i32x16, i32x16, types.int32)
def shift_right_i32(builder: Any, a: Any, bits: Any) -> Any:
    return builder.lshr(a, splat(builder, bits, i32x16.llvm))


@operation(i32x16, types.int32, types.int32)
def where_bits_i32(builder: Any, mask: Any, value: Any) -> Any:
    """Keep ``value`` in lanes whose bit of the 16 in ``mask`` is set; zero in the others."""
    chosen = builder.bitcast(builder.trunc(mask, I16), ir.VectorType(I1, 16))
    return builder.select(chosen, splat(builder, value, i32x16.llvm), constant(i32x16.llvm, 0))


# --- across lanes


@operation(types.float32, f32x16)
def sum_lanes(builder: Any, a: Any) -> Any:
    """Add up the lanes, halves to halves, so that every machine rounds alike."""
    return fold(builder, a, builder.fadd)


@operation(types.float32, f32x16)
def max_lanes(builder: Any, a: Any) -> Any:
    return fold(builder, a, lambda x, y: builder.select(builder.fcmp_ordered(">", x, y), x, y))


@operation(types.int32, i32x16)
def sum_lanes_i32(builder: Any, a: Any) -> Any:
    return fold(builder, a, builder.add)


def fold(builder: Any, vector: Any, combine: Any) -> Any:
    width = 16
    while width > 1:
        width //= 2
        low = pick(builder, vector, vector, list(range(width)))
        high = pick(builder, vector, vector, list(range(width, 2 * width)))
        vector = combine(low, high)
    return builder.extract_element(vector, I32(0))


@operation(f32x16, f32x16, types.int32)
def keep_first(builder: Any, a: Any, count: Any) -> Any:
    """Keep lanes below ``count``; zero in the others."""
    lanes = ir.Constant(i32x16.llvm, list(range(16)))
    return builder.select(
        builder.icmp_signed("<", lanes, splat(builder, count, i32x16.llvm)), a, constant(f32x16.llvm, 0.0)
    )


@operation(f32x16, f32x16, types.int32, types.int32, f32x16)
def between(builder: Any, a: Any, first: Any, end: Any, other: Any) -> Any:
    """Keep lanes from ``first`` up to ``end``; those of ``other`` elsewhere."""
    lanes = ir.Constant(i32x16.llvm, list(range(16)))
    low = builder.icmp_signed(">=", lanes, splat(builder, first, i32x16.llvm))
    high = builder.icmp_signed("<", lanes, splat(builder, end, i32x16.llvm))
    return builder.select(builder.and_(low, high), a, other)


@operation(f32x16, f32x16, f32x16, f32x16)
def where_negative(builder: Any, sign: Any, a: Any, b: Any) -> Any:
    """Select lanes of ``a`` where those of ``sign`` are negative, of ``b`` elsewhere."""
    return builder.select(builder.fcmp_ordered("<", sign, constant(f32x16.llvm, 0.0)), a, b)


@operation(types.float32, f32x16, types.int64)
def lane(builder: Any, a: Any, index: Any) -> Any:
    return builder.extract_element(a, index)


@operation(f32x16, f32x16)
def swap_pairs(builder: Any, a: Any) -> Any:
    """Swap each even lane with the next."""
    return pick(builder, a, a, [i ^ 1 for i in range(16)])


@operation(f32x16, f32x16)
def spread_pairs(builder: Any, a: Any) -> Any:
    """Repeat each of the first eight lanes twice."""
    return pick(builder, a, a, [i // 2 for i in range(16)])


@operation(f32x16, f32x16)
def negate_even(builder: Any, a: Any) -> Any:
    return builder.fmul(a, ir.Constant(f32x16.llvm, [-1.0, 1.0] * 8))


@operation(f32x16, f32x16, f32x16)
def interleave_low(builder: Any, a: Any, b: Any) -> Any:
    """Interleave the first eight lanes of ``a`` and ``b``."""
    return pick(builder, a, b, [i // 2 + 16 * (i % 2) for i in range(16)])


@operation(f32x16, f32x16, f32x16)
def interleave_high(builder: Any, a: Any, b: Any) -> Any:
    """Interleave the last eight lanes of ``a`` and ``b``."""
    return pick(builder, a, b, [8 + i // 2 + 16 * (i % 2) for i in range(16)])


# --- bytes


@operation(u8x64, u8x64)
def low_nibbles(builder: Any, a: Any) -> Any:
    return builder.and_(a, constant(u8x64.llvm, 15))


@operation(u8x64, u8x64)
def high_nibbles(builder: Any, a: Any) -> Any:
    return builder.lshr(a, constant(u8x64.llvm, 4))


@operation(i32x16, u8x64, types.int64)
def byte_of_lanes(builder: Any, a: Any, index: Any) -> Any:
    """Return byte ``index`` of each four bytes, as an unsigned number."""
    shift = builder.trunc(builder.shl(index, index.type(3)), I32)
    fours = builder.lshr(builder.bitcast(a, i32x16.llvm), splat(builder, shift, i32x16.llvm))
    return builder.and_(fours, constant(i32x16.llvm, 255))


@operation(u8x64, u8x64, types.int64)
def two_bits(builder: Any, a: Any, index: Any) -> Any:
    """Return bits ``2 * index`` and ``2 * index + 1`` of each byte."""
    shift = builder.trunc(builder.shl(index, index.type(1)), I8)
    return builder.and_(builder.lshr(a, splat(builder, shift, u8x64.llvm)), constant(u8x64.llvm, 3))


@operation(u8x64, u8x64, types.int64)
def shift_left(builder: Any, a: Any, bits: Any) -> Any:
    return builder.shl(a, splat(builder, builder.trunc(bits, I8), u8x64.llvm))


@operation(u8x64, types.int64, types.int32)
def where_bits(builder: Any, mask: Any, value: Any) -> Any:
    """Keep ``value`` in bytes whose bit of the 64 in ``mask`` is set; zero in the others."""
    chosen = builder.bitcast(mask, ir.VectorType(I1, 64))
    return builder.select(chosen, splat(builder, builder.trunc(value, I8), u8x64.llvm), constant(u8x64.llvm, 0))
