"""Operations with instructions of their own in each instruction set."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba import types

from pumice_cpu.isa import Isa
from pumice_cpu.simd.define import call, constant, of_set, operation, pick, splat
from pumice_cpu.simd.types import I8, I16, I32, f32x16, i32x16, u8x64

B16, B32, B64 = (ir.VectorType(I8, lanes) for lanes in (16, 32, 64))
S16, S32 = ir.VectorType(I16, 16), ir.VectorType(I16, 32)
D4, D8, D16 = (ir.VectorType(I32, lanes) for lanes in (4, 8, 16))


@operation(types.int32)
@of_set((I32,))
def signed_offset(isa: Isa, builder: Any) -> Any:
    """Return the offset that ``dot_signed`` adds to every weight: subtract this times the sum of ``x``."""
    return I32(isa.signed_offset)


@operation(i32x16, i32x16, u8x64, types.int32)
@of_set((D16, D16, B64, I32))
def dot(isa: Isa, builder: Any, total: Any, weights: Any, x: Any) -> Any:
    """Add to each lane the dot product of its four ``weights`` (0 to 127) and the four int8 in ``x``."""
    return _DOT[isa.name](builder, total, weights, builder.bitcast(splat(builder, x, D16), B64))


@operation(i32x16, i32x16, u8x64, types.int32)
@of_set((D16, D16, B64, I32))
def dot_signed(isa: Isa, builder: Any, total: Any, weights: Any, x: Any) -> Any:
    """Like ``dot``, with int8 weights of the full range, to each of which ``signed_offset`` is added."""
    spread = builder.bitcast(splat(builder, x, D16), B64)
    if isa.signed_offset:
        weights = builder.xor(weights, constant(B64, 128))
    elif isa.name in ("avx512", "avx2"):  # a weight's sign moves to x; -128 * -128 does not occur, x is at least -127
        negative = builder.icmp_signed("<", weights, constant(B64, 0))
        sizes = builder.select(negative, builder.sub(constant(B64, 0), weights), weights)
        if isa.name == "avx2":
            spread = _by_halves(builder, "llvm.x86.avx2.psign.b", B32, spread, weights)
        else:
            spread = builder.select(negative, builder.sub(constant(B64, 0), spread), spread)
        weights = sizes
    return _DOT[isa.name](builder, total, weights, spread)


def _vnni_512(builder: Any, total: Any, weights: Any, x: Any) -> Any:
    return call(builder, "llvm.x86.avx512.vpdpbusd.512", D16, total, weights, x)


def _vnni_256(builder: Any, total: Any, weights: Any, x: Any) -> Any:
    return _by_halves(builder, "llvm.x86.avx512.vpdpbusd.256", D8, total, weights, x)


def _madd_512(builder: Any, total: Any, weights: Any, x: Any) -> Any:
    pairs = call(builder, "llvm.x86.avx512.pmaddubs.w.512", S32, weights, x)
    return builder.add(total, call(builder, "llvm.x86.avx512.pmaddw.d.512", D16, pairs, constant(S32, 1)))


def _madd_256(builder: Any, total: Any, weights: Any, x: Any) -> Any:
    parts = []
    for i in range(2):
        pairs = call(builder, "llvm.x86.avx2.pmadd.ub.sw", S16, _part(builder, weights, i, 2), _part(builder, x, i, 2))
        parts.append(call(builder, "llvm.x86.avx2.pmadd.wd", D8, pairs, constant(S16, 1)))
    return builder.add(total, _join(builder, parts))


def _sdot(builder: Any, total: Any, weights: Any, x: Any) -> Any:
    name = "llvm.aarch64.neon.sdot.v4i32.v16i8"
    parts = [call(builder, name, D4, *(_part(builder, v, i, 4) for v in (total, weights, x))) for i in range(4)]
    pairs = [_join(builder, parts[:2]), _join(builder, parts[2:])]
    return _join(builder, pairs)


def _plain(builder: Any, total: Any, weights: Any, x: Any) -> Any:
    wide = ir.VectorType(I32, 64)
    products = builder.mul(builder.sext(weights, wide), builder.sext(x, wide))
    for first in range(4):
        total = builder.add(total, pick(builder, products, products, list(range(first, 64, 4))))
    return total


_DOT = {
    "avx512bf16": _vnni_512,
    "avx512vnni": _vnni_512,
    "avx512": _madd_512,
    "avxvnni": _vnni_256,
    "avx2": _madd_256,
    "neon": _sdot,
    "plain": _plain,
}


@operation(u8x64, u8x64, u8x64)
@of_set((B64, B64, B64))
def lookup(isa: Isa, builder: Any, table: Any, index: Any) -> Any:
    """Look up bytes at ``index`` 0 to 15 in a table of 16, repeated four times in ``table``."""
    if isa.name.startswith("avx512"):
        return call(builder, "llvm.x86.avx512.pshuf.b.512", B64, table, index)
    if isa.name.startswith("avx"):
        return _by_halves(builder, "llvm.x86.avx2.pshuf.b", B32, table, index)
    if isa.name == "neon":
        parts = [
            call(builder, "llvm.aarch64.neon.tbl1.v16i8", B16, _part(builder, table, i, 4), _part(builder, index, i, 4))
            for i in range(4)
        ]
        return _join(builder, [_join(builder, parts[:2]), _join(builder, parts[2:])])
    result = constant(B64, 0)
    for i in range(16):
        value = splat(builder, builder.extract_element(table, I32(i)), B64)
        result = builder.select(builder.icmp_unsigned("==", index, constant(B64, i)), value, result)
    return result


class _BFloatType(ir.HalfType):
    """LLVM's bfloat, which llvmlite does not have."""

    null = "0.0"
    intrinsic_name = "bf16"

    def __str__(self) -> str:
        return "bfloat"


_BFloatType._create_instance()  # llvmlite's float types are singletons
_BF16_32 = ir.VectorType(_BFloatType(), 32)


@operation(f32x16, f32x16, i32x16, types.int32)
def dot_bf16(builder: Any, total: Any, weights: Any, x: Any) -> Any:
    """Add to each lane the dot product of two bfloat16 pairs; requires ``Isa.multiplies_bf16``."""
    pairs = [builder.bitcast(value, _BF16_32) for value in (weights, splat(builder, x, D16))]
    return call(builder, "llvm.x86.avx512bf16.dpbf16ps.512", f32x16.llvm, total, *pairs)


@operation(f32x16, f32x16, f32x16)
def to_bf16(builder: Any, low: Any, high: Any) -> Any:
    """Round 32 float32 to nearest bfloat16, packed in one vector; requires ``Isa.multiplies_bf16``."""
    rounded = call(builder, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", _BF16_32, high, low)
    return builder.bitcast(rounded, f32x16.llvm)


@operation(f32x16, f32x16)
def pairs_of_halves(builder: Any, a: Any) -> Any:
    """Pair the bfloat16 of the first half of a vector with those of the second."""
    halves = builder.bitcast(a, ir.VectorType(I16, 32))
    paired = pick(builder, halves, halves, [i // 2 + 16 * (i % 2) for i in range(32)])
    return builder.bitcast(paired, f32x16.llvm)


def _by_halves(builder: Any, name: str, half: Any, *vectors: Any) -> Any:
    """Call an intrinsic of 32-byte registers on both halves of vectors."""
    return _join(builder, [call(builder, name, half, *(_part(builder, v, i, 2) for v in vectors)) for i in range(2)])


def _part(builder: Any, vector: Any, index: int, parts: int) -> Any:
    width = vector.type.count // parts
    return pick(builder, vector, vector, list(range(index * width, (index + 1) * width)))


def _join(builder: Any, parts: list[Any]) -> Any:
    low, high = parts
    return pick(builder, low, high, list(range(2 * low.type.count)))
