"""Products of few rows of x: matrix times vector (shaders/matvec.comp), with int8 activations where allowed.

More than MOST_VECTORS rows are passes of at most MOST_VECTORS, each of which reads the matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pumice.plugin import Tensor
from pumice_vulkan.flags import ProductFlag, XMode
from pumice_vulkan.formats import BLOCK_COLUMNS
from pumice_vulkan.lower.matrices import NO_FLAGS, Experts, Matrix, gate_flags, product_flags
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.tuning import VectorShape, of_whole_blocks, vector_shape

MOST_MATRICES = 3  # maximum matrices that share x, as in shaders/matvec.comp
MOST_VECTORS = 8  # maximum rows of activations in a pass of shaders/matvec.comp
INT8_X = "int8 activations"  # name of the scratch memory, and key of its contents
SHARED_X_BYTES = 16384  # maximum quantized activations in shared memory
INT8_BLOCK_BYTES = 40  # 32 int8 activations with their scale and sums


@dataclass(frozen=True)
class VectorProduct:
    """Up to three products of the same few rows of x, with weights of one format in one buffer.

    Attributes:
        norm: weight and epsilon of an RMS norm of x (int8 activations only).
        paired: the result is ``silu(x @ weights[0].T) * (x @ weights[1].T)``.
        gelu: with GELU instead of SiLU.
        output: if set with ``paired``, the result is also stored as int8 where possible.
    """

    x: Tensor
    weights: Sequence[Matrix]
    ys: Sequence[BufferSlice]
    biases: Sequence[BufferSlice | None] = ()
    residual: BufferSlice | None = None
    norm: tuple[BufferSlice, float] | None = None
    paired: bool = False
    gelu: bool = False
    experts: Experts | None = None
    output: Tensor | None = None

    @property
    def first(self) -> Matrix:
        return self.weights[0]

    @property
    def n_rows(self) -> int:
        return sum(weight.n_rows for weight in self.weights)

    @property
    def flags(self) -> ProductFlag:
        ragged = self.first.n_columns % self.first.format.columns
        return (
            product_flags(any(self.biases), self.residual, ragged)
            | (gate_flags(self.gelu) if self.paired else NO_FLAGS)
            | (self.experts.flags if self.experts else NO_FLAGS)
        )

    def n_tiles(self, shape: VectorShape) -> int:
        """Return the workgroups per row of x; a workgroup never spans two matrices."""
        tile = shape.groups * (shape.rows // 2 if self.paired else shape.rows)
        return sum(-(-weight.n_rows // tile) for weight in (self.weights[:1] if self.paired else self.weights))


def vector_product(lowering: Lowering, call: VectorProduct) -> None:
    """Append a dispatch of shaders/matvec.comp."""
    first, experts = call.first, call.experts
    assert all(weight.format is first.format and weight.place.buffer is first.place.buffer for weight in call.weights)
    n_passes = 1 if experts else -(-lowering.rows(call.x) // MOST_VECTORS)
    n_tokens = 1 if experts else -(-lowering.rows(call.x) // n_passes)
    assert n_passes == 1 or not (call.paired or call.norm)
    int8 = use_int8(lowering, first)
    x_place, x_mode = _vectors(lowering, call, n_tokens)
    # Lanes along a row, and so the order of its sums, are the same for three and more.
    n_shaped = max(3, n_tokens) if lowering.invariant else n_tokens
    crowded = n_passes > MOST_VECTORS
    shape = vector_shape(
        *(lowering.device, call.n_rows, first.row_blocks, n_shaped, first.format), call.paired, crowded, int8
    )
    flags, ys = call.flags, list(call.ys)
    leaves_int8 = call.output and call.paired and x_mode != XMode.X_QUANTIZED
    wide = of_whole_blocks(lowering.device, shape, first.row_blocks) if leaves_int8 else None
    if wide and int8 and first.n_rows % BLOCK_COLUMNS == 0:
        shape, flags = wide, flags | ProductFlag.QUANTIZED_Y
        ys.append(_int8_place(lowering, n_tokens, first.n_rows // BLOCK_COLUMNS))
        lowering.remembered[INT8_X] = call.output
    n_pairs = lowering.rows(call.x) * experts.n_used if experts else n_passes
    lowering.dispatch(
        f"matvec_int8.{first.format.name}" if int8 else f"matvec.{first.format.name}",
        count=call.x,
        reads={
            "x": x_place,
            "norm": call.norm[0] if call.norm else x_place,
            "weights": _three([weight.place for weight in call.weights]),
            "bias": _three([bias or x_place for bias in call.biases] or [x_place]),
            "residual": call.residual or x_place,
            "ids": experts.ids if experts and experts.ids else x_place,
        },
        writes={"y": _three(ys)},
        push={
            "n_rows": [*(weight.n_rows for weight in call.weights), *[0] * (3 - len(call.weights))],
            "n_matrix_rows": first.n_rows * first.n_matrices,
            "n_columns": first.n_columns,
            "n_used": experts.n_used if experts else 1,
            "eps": call.norm[1] if call.norm else 0.0,
        },
        constants=[
            *(shape.lanes, shape.groups, shape.rows, shape.unroll, n_tokens, lowering.device.subgroup_size),
            *(first.row_blocks, x_mode, flags, len(call.weights), shape.prefetch),
        ],
        grid=(call.n_tiles(shape), *_fold(n_pairs, lowering.device.description.max_threadgroups[1])),
        full_subgroups=True,
        label=f"matvec {first.format.name} {call.n_rows}x{first.n_columns}",
    )


def _vectors(lowering: Lowering, call: VectorProduct, n_tokens: int) -> tuple[BufferSlice, XMode]:
    """Return the place of x and the kernel's treatment of it.

    Rows are quantized before if other products share them, or if they exceed the kernel's shared memory.
    """
    row_blocks = call.first.row_blocks
    if not use_int8(lowering, call.first):
        return lowering.place(call.x), XMode.X_QUANTIZED
    if call.norm is None and not call.experts and lowering.remembered.get(INT8_X) is call.x:
        return quantized(lowering, call.x, row_blocks), XMode.X_QUANTIZED
    if n_tokens * row_blocks * INT8_BLOCK_BYTES <= SHARED_X_BYTES:
        return lowering.place(call.x), XMode.X_NORM if call.norm else XMode.X_PLAIN
    assert call.norm is None
    return quantized(lowering, call.x, row_blocks), XMode.X_QUANTIZED


def use_int8(lowering: Lowering, weight: Matrix) -> bool:
    """Return True if products with few rows quantize activations to int8."""
    return lowering.int8 and not weight.format.dense


def quantized(lowering: Lowering, x: Tensor, row_blocks: int) -> BufferSlice:
    """Quantize the rows of x, and of each of its heads, to int8 (shaders/quantize.comp) in scratch memory."""
    n_rows = lowering.rows(x) * lowering.width(x) // (BLOCK_COLUMNS * row_blocks)
    place = _int8_place(lowering, n_rows, row_blocks)
    if lowering.remembered.get(INT8_X) is not x:
        lowering.dispatch(
            "quantize",
            count=x,
            reads={"x": lowering.place(x)},
            writes={"y": place},
            push={"n_blocks": row_blocks},
            grid=(-(-row_blocks // 8), n_rows, 1),
            full_subgroups=True,
        )
        lowering.remembered[INT8_X] = x
    return place


def _int8_place(lowering: Lowering, n_rows: int, row_blocks: int) -> BufferSlice:
    return lowering.scratch(INT8_X, 4 * n_rows * (-(-row_blocks * 10 // 4) * 4))


def _three(places: Sequence[BufferSlice]) -> list[BufferSlice]:
    """Pad a list to the three entries that kernels expect by repeating the last."""
    return [*places, *[places[-1]] * (3 - len(places))]


def _fold(count: int, most: int) -> tuple[int, int]:
    """Return two dimensions of a grid with at least ``count`` workgroups."""
    z = -(-count // most)
    return -(-count // z), z
