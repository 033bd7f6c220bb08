"""Products of few rows of x: matrix times vector (shaders/matvec.comp), with activations in int8 where they may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pumice.plugin import Tensor
from pumice_vulkan.flags import ProductFlag, XMode
from pumice_vulkan.formats import BLOCK_COLUMNS
from pumice_vulkan.lower.matrices import NO_FLAGS, Experts, Matrix, product_flags
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.memory import Place
from pumice_vulkan.tuning import VectorShape, of_whole_blocks, vector_shape

MOST_MATRICES = 3  # that share x, as in shaders/matvec.comp
MOST_VECTORS = 8  # rows of activations that shaders/matvec.comp takes
INT8_X = "int8 activations"  # scratch memory, and whose they are
SHARED_X_BYTES = 16384  # of quantized activations in shared memory
INT8_BLOCK_BYTES = 40  # of 32 activations in int8, with their scale and sums


@dataclass(frozen=True)
class VectorProduct:
    """Up to three products of the same few rows of x, with weights of one format in one buffer.

    ``norm`` is the weight and epsilon of an RMS norm of x (int8 only); with ``paired`` the result is
    ``silu(x @ weights[0].T) * (x @ weights[1].T)``; if that is ``output``, it is left in int8 too, where that can be.
    """

    x: Tensor
    weights: Sequence[Matrix]
    ys: Sequence[Place]
    biases: Sequence[Place | None] = ()
    residual: Place | None = None
    norm: tuple[Place, float] | None = None
    paired: bool = False
    experts: Experts | None = None
    output: Tensor | None = None

    @property
    def first(self) -> Matrix:
        return self.weights[0]

    @property
    def n_rows(self) -> int:
        return sum(each.n_rows for each in self.weights)

    @property
    def flags(self) -> ProductFlag:
        ragged = self.first.n_columns % self.first.format.columns
        return (
            product_flags(any(self.biases), self.residual, ragged)
            | (ProductFlag.PAIRED if self.paired else NO_FLAGS)
            | (self.experts.flags if self.experts else NO_FLAGS)
        )

    def n_tiles(self, shape: VectorShape) -> int:
        """Workgroups for a row of x: those of one matrix do not go on with the next."""
        tile = shape.groups * (shape.rows // 2 if self.paired else shape.rows)
        return sum(-(-each.n_rows // tile) for each in (self.weights[:1] if self.paired else self.weights))


def vector_product(at: Lowering, call: VectorProduct) -> None:
    """A dispatch of shaders/matvec.comp."""
    first, experts = call.first, call.experts
    assert all(each.format is first.format and each.place.buffer is first.place.buffer for each in call.weights)
    n_tokens = 1 if experts else at.rows(call.x)
    int8 = use_int8(at, first)
    x_place, x_mode = _vectors(at, call, n_tokens)
    shape = vector_shape(at.device, call.n_rows, first.row_blocks, n_tokens, first.format, call.paired)
    flags, ys = call.flags, list(call.ys)
    leaves_int8 = call.output and call.paired and x_mode != XMode.X_QUANTIZED
    wide = of_whole_blocks(at.device, shape, first.row_blocks) if leaves_int8 else None
    if wide and int8 and first.n_rows % BLOCK_COLUMNS == 0:
        shape, flags = wide, flags | ProductFlag.QUANTIZED_Y
        ys.append(_int8_place(at, n_tokens, first.n_rows // BLOCK_COLUMNS))
        at.remembered[INT8_X] = call.output
    n_pairs = at.rows(call.x) * experts.n_used if experts else 1
    at.dispatch(
        f"matvec_int8.{first.format.name}" if int8 else f"matvec.{first.format.name}",
        count=call.x,
        reads={
            "x": x_place,
            "norm": call.norm[0] if call.norm else x_place,
            "weights": _three([each.place for each in call.weights]),
            "bias": _three([bias or x_place for bias in call.biases] or [x_place]),
            "residual": call.residual or x_place,
            "ids": experts.ids if experts and experts.ids else x_place,
        },
        writes={"y": _three(ys)},
        push={
            "n_rows": [*(each.n_rows for each in call.weights), *[0] * (3 - len(call.weights))],
            "n_matrix_rows": first.n_rows * first.n_matrices,
            "n_columns": first.n_columns,
            "n_used": experts.n_used if experts else 1,
            "eps": call.norm[1] if call.norm else 0.0,
        },
        constants=[
            *(shape.lanes, shape.groups, shape.rows, shape.unroll, n_tokens, at.device.subgroup_size),
            *(first.row_blocks, x_mode, flags, len(call.weights), shape.prefetch),
        ],
        grid=(call.n_tiles(shape), *_fold(n_pairs, at.device.max_threadgroups[1])),
        full_subgroups=True,
        label=f"matvec {first.format.name} {call.n_rows}x{first.n_columns}",
    )


def _vectors(at: Lowering, call: VectorProduct, n_tokens: int) -> tuple[Place, XMode]:
    """Where the kernel finds the rows of x, and what it makes of them. They are in int8 already where others use them
    too, or where they are too many for its shared memory.
    """
    row_blocks = call.first.row_blocks
    if not use_int8(at, call.first):
        return at.place(call.x), XMode.X_QUANTIZED
    if call.norm is None and not call.experts and at.remembered.get(INT8_X) is call.x:
        return quantized(at, call.x, row_blocks), XMode.X_QUANTIZED
    if n_tokens * row_blocks * INT8_BLOCK_BYTES <= SHARED_X_BYTES:
        return at.place(call.x), XMode.X_NORM if call.norm else XMode.X_PLAIN
    assert call.norm is None
    return quantized(at, call.x, row_blocks), XMode.X_QUANTIZED


def use_int8(at: Lowering, weight: Matrix) -> bool:
    """Whether activations become int8 for products with few rows of them."""
    return at.int8 and not weight.format.dense


def quantized(at: Lowering, x: Tensor, row_blocks: int) -> Place:
    """The rows of x in int8 (shaders/quantize.comp), in scratch memory."""
    place = _int8_place(at, at.rows(x), row_blocks)
    if at.remembered.get(INT8_X) is not x:
        at.dispatch(
            "quantize",
            count=x,
            reads={"x": at.place(x)},
            writes={"y": place},
            push={"n_blocks": row_blocks},
            grid=(-(-row_blocks // 8), at.rows(x), 1),
            full_subgroups=True,
        )
        at.remembered[INT8_X] = x
    return place


def _int8_place(at: Lowering, n_rows: int, row_blocks: int) -> Place:
    return at.scratch(INT8_X, 4 * n_rows * (-(-row_blocks * 10 // 4) * 4))


def _three(places: Sequence[Place]) -> list[Place]:
    """Kernels have three of each; the last is repeated."""
    return [*places, *[places[-1]] * (3 - len(places))]


def _fold(count: int, most: int) -> tuple[int, int]:
    """Two dimensions of a grid, for at least so many."""
    z = -(-count // most)
    return -(-count // z), z
