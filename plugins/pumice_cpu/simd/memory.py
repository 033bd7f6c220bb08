"""Loads and stores at addresses (int64), with conversion between stored types and those of vectors.

No alignment is required.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba import types

from pumice_cpu.simd.define import call, constant, operation, splat
from pumice_cpu.simd.half import float_to_half, half_to_float
from pumice_cpu.simd.types import F16, F32, F64, I8, I16, I32, I64, f32x16, i32x16, u8x64

address = types.int64


def _load(builder: Any, pointer: Any, llvm: Any) -> Any:
    value = builder.load(builder.inttoptr(pointer, llvm.as_pointer()))
    value.align = 1
    return value


def _store(builder: Any, pointer: Any, value: Any) -> None:
    builder.store(value, builder.inttoptr(pointer, value.type.as_pointer())).align = 1


# --- one value


@operation(types.float32, address)
def get_f32(builder: Any, pointer: Any) -> Any:
    return _load(builder, pointer, F32)


@operation(types.float64, address)
def get_f64(builder: Any, pointer: Any) -> Any:
    return _load(builder, pointer, F64)


@operation(types.float32, address)
def get_f16(builder: Any, pointer: Any) -> Any:
    return half_to_float(builder, _load(builder, pointer, F16))


@operation(types.float32, address)
def get_bf16(builder: Any, pointer: Any) -> Any:
    wide = builder.zext(_load(builder, pointer, I16), I32)
    return builder.bitcast(builder.shl(wide, I32(16)), F32)


@operation(types.int32, address)
def get_i32(builder: Any, pointer: Any) -> Any:
    return _load(builder, pointer, I32)


@operation(types.int64, address)
def get_i64(builder: Any, pointer: Any) -> Any:
    return _load(builder, pointer, I64)


@operation(types.int32, address)
def get_i8(builder: Any, pointer: Any) -> Any:
    return builder.sext(_load(builder, pointer, I8), I32)


@operation(types.int32, address)
def get_u8(builder: Any, pointer: Any) -> Any:
    return builder.zext(_load(builder, pointer, I8), I32)


@operation(types.int32, address)
def get_u16(builder: Any, pointer: Any) -> Any:
    return builder.zext(_load(builder, pointer, I16), I32)


@operation(types.void, address, types.float32)
def put_f32(builder: Any, pointer: Any, value: Any) -> Any:
    _store(builder, pointer, value)


@operation(types.void, address, types.float32)
def put_f16(builder: Any, pointer: Any, value: Any) -> Any:
    _store(builder, pointer, float_to_half(builder, value))


@operation(types.void, address, types.float32)
def put_bf16(builder: Any, pointer: Any, value: Any) -> Any:
    """Round to nearest, ties to even; NaN stays NaN."""
    bits = builder.bitcast(value, I32)
    odd = builder.and_(builder.lshr(bits, I32(16)), I32(1))
    rounded = builder.add(builder.add(bits, I32(0x7FFF)), odd)
    quiet = builder.or_(bits, I32(0x400000))
    bits = builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded)
    _store(builder, pointer, builder.trunc(builder.lshr(bits, I32(16)), I16))


@operation(types.void, address, types.int32)
def put_i32(builder: Any, pointer: Any, value: Any) -> Any:
    _store(builder, pointer, value)


@operation(types.void, address, types.int64)
def put_i64(builder: Any, pointer: Any, value: Any) -> Any:
    _store(builder, pointer, value)


@operation(types.void, address, types.int32)
def put_u8(builder: Any, pointer: Any, value: Any) -> Any:
    _store(builder, pointer, builder.trunc(value, I8))


@operation(types.void, address, types.int32)
def put_u16(builder: Any, pointer: Any, value: Any) -> Any:
    _store(builder, pointer, builder.trunc(value, I16))


# --- sixteen values


@operation(f32x16, address)
def load_f32(builder: Any, pointer: Any) -> Any:
    return _load(builder, pointer, f32x16.llvm)


@operation(f32x16, address)
def load_f16(builder: Any, pointer: Any) -> Any:
    return half_to_float(builder, _load(builder, pointer, ir.VectorType(F16, 16)))


@operation(f32x16, address)
def load_bf16(builder: Any, pointer: Any) -> Any:
    wide = builder.zext(_load(builder, pointer, ir.VectorType(I16, 16)), i32x16.llvm)
    return builder.bitcast(builder.shl(wide, ir.Constant(i32x16.llvm, [16] * 16)), f32x16.llvm)


@operation(i32x16, address)
def load_i32(builder: Any, pointer: Any) -> Any:
    return _load(builder, pointer, i32x16.llvm)


@operation(i32x16, address)
def load_i8(builder: Any, pointer: Any) -> Any:
    return builder.sext(_load(builder, pointer, ir.VectorType(I8, 16)), i32x16.llvm)


@operation(i32x16, address)
def load_i16(builder: Any, pointer: Any) -> Any:
    return builder.sext(_load(builder, pointer, ir.VectorType(I16, 16)), i32x16.llvm)


@operation(f32x16, address)
def load_i64(builder: Any, pointer: Any) -> Any:
    """Load sixteen int64, rounded to float32."""
    return builder.sitofp(_load(builder, pointer, ir.VectorType(I64, 16)), f32x16.llvm)


@operation(f32x16, address)
def load_f64(builder: Any, pointer: Any) -> Any:
    """Load sixteen float64, rounded to float32."""
    return builder.fptrunc(_load(builder, pointer, ir.VectorType(F64, 16)), f32x16.llvm)


@operation(i32x16, address)
def load_u8(builder: Any, pointer: Any) -> Any:
    return builder.zext(_load(builder, pointer, ir.VectorType(I8, 16)), i32x16.llvm)


@operation(types.void, address, f32x16)
def store_f32(builder: Any, pointer: Any, value: Any) -> Any:
    _store(builder, pointer, value)


@operation(types.void, address, i32x16)
def store_i32(builder: Any, pointer: Any, value: Any) -> Any:
    _store(builder, pointer, value)


@operation(types.void, address, i32x16)
def store_i8(builder: Any, pointer: Any, value: Any) -> Any:
    """Store the low byte of each lane."""
    _store(builder, pointer, builder.trunc(value, ir.VectorType(I8, 16)))


# --- the first few of sixteen values


@operation(f32x16, address, types.int64)
def load_first_f32(builder: Any, pointer: Any, count: Any) -> Any:
    """Load ``count`` values, padded with zeros; memory beyond is not touched."""
    vector = f32x16.llvm
    values = (builder.inttoptr(pointer, vector.as_pointer()), I32(1), _first(builder, count), constant(vector, 0.0))
    return call(builder, "llvm.masked.load.v16f32.p0", vector, *values)


@operation(types.void, address, f32x16, types.int64)
def store_first_f32(builder: Any, pointer: Any, value: Any, count: Any) -> Any:
    """Store the first ``count`` values; memory beyond is not touched."""
    place = builder.inttoptr(pointer, f32x16.llvm.as_pointer())
    call(builder, "llvm.masked.store.v16f32.p0", ir.VoidType(), value, place, I32(1), _first(builder, count))


def _first(builder: Any, count: Any) -> Any:
    """Return a mask of the lanes below ``count``."""
    lanes = ir.Constant(i32x16.llvm, list(range(16)))
    return builder.icmp_signed("<", lanes, splat(builder, builder.trunc(count, I32), i32x16.llvm))


# --- sixty-four bytes


@operation(u8x64, address)
def load_bytes(builder: Any, pointer: Any) -> Any:
    return _load(builder, pointer, u8x64.llvm)


@operation(types.void, address, u8x64)
def store_bytes(builder: Any, pointer: Any, value: Any) -> Any:
    _store(builder, pointer, value)


@operation(types.void, address)
def prefetch(builder: Any, pointer: Any) -> Any:
    """Prefetch the cache line at an address, which may be invalid."""
    hint = (I32(0), I32(3), I32(1))  # read access, high locality, data cache
    call(builder, "llvm.prefetch.p0", ir.VoidType(), builder.inttoptr(pointer, I8.as_pointer()), *hint)
