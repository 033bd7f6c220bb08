"""Tile registers of AMX: eight matrices of 16 rows of 64 bytes (Intel, Sapphire Rapids and later).

Tiles 0 to 3 hold the sums of 32 rows of activations and 32 rows of weights, 4 and 5 activations, 6 and 7 weights. LLVM
does not assign these registers, so the functions here name them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import llvmlite.ir as ir
from numba import types

from pumice_cpu.simd.define import call, operation
from pumice_cpu.simd.types import I8, I64

address = types.int64

_VOID = ir.VoidType()
_SUMS, _X, _WEIGHTS = (0, 1, 2, 3), (4, 5), (6, 7)
_ROW = 64  # bytes of a row of a tile
_TILE = 16 * _ROW

#: The configuration (`ldtilecfg`): palette 1; then, from byte 16, the bytes of a row, and from byte 48, the rows.
_CONFIGURATION = bytes([1, *[0] * 15, *[_ROW, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8])


def _pointer(builder: Any, place: Any, offset: int = 0) -> Any:
    return builder.inttoptr(builder.add(place, I64(offset)), I8.as_pointer())


@operation(types.void, address)
def begin(builder: Any, state: Any) -> None:
    """Configure the tiles of this thread; ``state`` is the address of 64 bytes of scratch."""
    value = ir.Constant(ir.ArrayType(I8, 64), bytearray(_CONFIGURATION))
    builder.store(value, builder.inttoptr(state, value.type.as_pointer())).align = 1
    call(builder, "llvm.x86.ldtilecfg", _VOID, _pointer(builder, state))


@operation(types.void, address)
def end(builder: Any, state: Any) -> None:
    """Give the tiles back, so that the system saves less of this thread."""
    call(builder, "llvm.x86.tilerelease", _VOID)


@operation(types.void, address)
def clear(builder: Any, state: Any) -> None:
    """Set all sums to 0."""
    for tile in _SUMS:
        call(builder, "llvm.x86.tilezero", _VOID, I8(tile))


def _sums_at(builder: Any, place: Any) -> Iterator[tuple[int, Any]]:
    """Yield each tile of sums, and the pointer to its part of 32 rows of 32 float32."""
    for i, tile in enumerate(_SUMS):
        yield tile, _pointer(builder, place, 16 * 2 * _ROW * (i // 2) + _ROW * (i % 2))


@operation(types.void, address, address)
def load(builder: Any, state: Any, place: Any) -> None:
    """Set the sums to those at ``place``, as ``store`` left them."""
    for tile, pointer in _sums_at(builder, place):
        call(builder, "llvm.x86.tileloadd64", _VOID, I8(tile), pointer, I64(2 * _ROW))


@operation(types.void, address, address, address, address)
def multiply(builder: Any, state: Any, low: Any, high: Any, weights: Any) -> None:
    """Add the products of 32 columns: tiles of activations at ``low`` and ``high`` times two tiles at ``weights``."""
    for tile, place, offset in ((4, low, 0), (6, weights, 0), (7, weights, _TILE), (5, high, 0)):
        call(builder, "llvm.x86.tileloadd64", _VOID, I8(tile), _pointer(builder, place, offset), I64(_ROW))
    for i, tile in enumerate(_SUMS):
        call(builder, "llvm.x86.tdpbf16ps", _VOID, I8(tile), I8(_X[i // 2]), I8(_WEIGHTS[i % 2]))


@operation(types.void, address, address)
def store(builder: Any, state: Any, place: Any) -> None:
    """Store the sums at ``place``: 32 rows of 32 float32."""
    for tile, pointer in _sums_at(builder, place):
        call(builder, "llvm.x86.tilestored64", _VOID, I8(tile), pointer, I64(2 * _ROW))
