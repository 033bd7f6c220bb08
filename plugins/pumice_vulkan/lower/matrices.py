"""Matrices of products: weights on the device, and the assignment of rows of x to matrices."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Weight, fixed
from pumice_vulkan.flags import ProductFlag
from pumice_vulkan.formats import FORMATS, IN_LANES, LANES_ROWS, LANES_STEP, Format
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.packing import pack

NO_FLAGS = ProductFlag(0)


@dataclass(frozen=True)
class Matrix:
    """A weight on the device; ``n_rows`` counts the rows of one matrix of a stack."""

    format: Format
    place: BufferSlice
    n_rows: int
    n_columns: int
    n_matrices: int = 1

    @property
    def row_blocks(self) -> int:
        return self.format.row_blocks(self.n_columns)


@dataclass(frozen=True)
class Experts:
    """A product for each pair of a token and one of ``n_used`` matrices: those of ``ids``, or all without ids.

    ``own_x``: each pair has its own row of x.
    """

    n_used: int
    ids: BufferSlice | None = None
    own_x: bool = True

    @property
    def flags(self) -> ProductFlag:
        which = ProductFlag.BY_ID if self.ids else ProductFlag.BY_HEAD
        return which | ProductFlag.OWN_X if self.own_x else which


@dataclass(frozen=True)
class Routes:
    """The assignment of vectors to matrices for a kernel of many rows (shaders/routes.glsl).

    It has ``n_tiles`` workgroups; shaders/group.comp computes ``tiles`` and ``order`` for experts.
    """

    n_tiles: int
    n_heads: int = 1
    n_used: int = 1
    flags: ProductFlag = NO_FLAGS
    tiles: BufferSlice | None = None
    order: BufferSlice | None = None

    def places(self, instead: BufferSlice) -> dict[str, BufferSlice]:
        return {"tiles": self.tiles or instead, "order": self.order or instead}


PLANES = "planes"  # layout of matrices


def matrix(lowering: Lowering, weight: Weight) -> Matrix:
    *matrices, n_rows, n_columns = fixed(weight.shape)
    format = FORMATS[weight.type]
    if lowering.memory.lanes and n_rows % LANES_ROWS == 0 and n_columns % LANES_STEP == 0:
        format = IN_LANES.get(weight.type, format)
    place = lowering.upload(weight, PLANES, lambda: [pack(weight, format)])[0]
    return Matrix(format, place, n_rows, n_columns, *matrices)


def repeated_matrix(lowering: Lowering, weight: Weight, n: int) -> Matrix:
    """Return a stack of ``n`` copies of a matrix of an uncompressed type."""
    n_rows, n_columns = fixed(weight.shape)

    def stack() -> NDArray[np.generic]:
        rows = pack(weight, FORMATS[weight.type])
        assert isinstance(rows, np.ndarray)
        return np.tile(rows, (n, 1))

    place = lowering.upload(weight, (PLANES, n), lambda: [stack()])[0]
    return Matrix(FORMATS[weight.type], place, n_rows, n_columns, n)


def product_flags(bias: object, residual: object, ragged: object) -> ProductFlag:
    """Return the flags of the operands that are present."""
    return _combined(bool(bias), bool(residual), bool(ragged))


@functools.cache
def _combined(bias: bool, residual: bool, ragged: bool) -> ProductFlag:
    chosen = {ProductFlag.BIAS: bias, ProductFlag.RESIDUAL: residual, ProductFlag.RAGGED_X: ragged}
    return ProductFlag(sum(flag for flag, present in chosen.items() if present))


def gate_flags(gelu: bool) -> ProductFlag:
    """Return the flags of a product that gates another, by SiLU or by GELU."""
    return ProductFlag.PAIRED | (ProductFlag.GELU if gelu else NO_FLAGS)


def use_cooperative(lowering: Lowering, weight: Matrix) -> bool:
    """Return True if matrix units compute a product; not for float32 weights, which may need the precision."""
    if lowering.invariant:
        return False
    return lowering.cooperative and weight.format.name != "f32" and weight.n_columns % 8 == 0 and weight.n_rows % 4 == 0
