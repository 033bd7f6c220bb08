"""Dispatches of matrix products: which kernel, and its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pumice.plugin import Tensor, Weight, fixed
from pumice_vulkan.flags import ProductFlag, XMode
from pumice_vulkan.formats import BLOCK_COLUMNS, FORMATS, Format
from pumice_vulkan.lower.halves import UNIT, halves, new_halves
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.memory import Place
from pumice_vulkan.packing import pack
from pumice_vulkan.tuning import (
    FewShape,
    TileShape,
    VectorShape,
    few_shape,
    of_whole_blocks,
    tile_shape,
    vector_shape,
)

MOST_VECTORS = 8  # rows of activations that shaders/matvec.comp takes
MOST_FEW = 64  # rows of x for which shaders/matmul_few.comp is best
SMALL = 2**19  # values of a matrix that is read from the cache for each of some rows
TILE_VECTORS = 32  # that a workgroup of shaders/matmul.comp has
NO_FLAGS = ProductFlag(0)
INT8_X = "int8 activations"  # scratch memory, and whose they are
SHARED_X_BYTES = 16384  # of quantized activations in shared memory
INT8_BLOCK_BYTES = 40  # of 32 activations in int8, with their scale and sums


@dataclass(frozen=True)
class Matrix:
    """A weight on the device; ``n_rows`` of each of its matrices, if it has several."""

    format: Format
    place: Place
    n_rows: int
    n_columns: int
    n_matrices: int = 1

    @property
    def row_blocks(self) -> int:
        return self.format.row_blocks(self.n_columns)


@dataclass(frozen=True)
class Experts:
    """A product for each pair of a token and one of ``n_used`` matrices: those of ``ids``, or all without ids.

    ``own_x``: each pair has a row of x of its own.
    """

    n_used: int
    ids: Place | None = None
    own_x: bool = True

    @property
    def flags(self) -> ProductFlag:
        which = ProductFlag.BY_ID if self.ids else ProductFlag.BY_HEAD
        return which | ProductFlag.OWN_X if self.own_x else which


@dataclass(frozen=True)
class Routes:
    """Which vectors a kernel for many multiplies with which matrix (shaders/routes.glsl).

    There are ``n_tiles`` workgroups of them; ``tiles`` and ``order`` are what shaders/group.comp makes for experts.
    """

    n_tiles: int
    n_heads: int = 1
    n_used: int = 1
    flags: ProductFlag = NO_FLAGS
    tiles: Place | None = None
    order: Place | None = None

    def places(self, instead: Place) -> dict[str, Place]:
        return {"tiles": self.tiles or instead, "order": self.order or instead}


def matrix(at: Lowering, weight: Weight) -> Matrix:
    *matrices, n_rows, n_columns = fixed(weight.shape)
    place = at.upload(weight, "planes", lambda: [pack(weight)])[0]
    return Matrix(FORMATS[weight.type], place, n_rows, n_columns, *matrices)


def product(
    at: Lowering, x: Tensor, weight: Matrix, y: Place, bias: Place | None = None, residual: Place | None = None
) -> None:
    """``y = x @ weight.T + bias + residual`` with the kernel for so many rows of x."""
    if shape := use_few(at, weight, at.rows(x)):
        few_product(at, FewProduct(x, [weight], y, bias, residual), shape)
    elif at.rows(x) <= MOST_VECTORS:
        vector_product(at, VectorProduct(x, [weight], [y], [bias], residual))
    elif at.rows(x) <= MOST_FEW and weight.format.dense and weight.n_rows * weight.n_columns <= SMALL:
        vector_product(at, VectorProduct(x, [weight], [y], [bias], residual, experts=Experts(1)))
    elif use_cooperative(at, weight):
        cooperative_product(at, x, weight, y, bias, residual)
    else:
        tiled_product(at, x, weight, y, bias, residual)


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
            _flags(any(self.biases), self.residual, ragged)
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
    wide = of_whole_blocks(at.device, shape) if call.output and call.paired and x_mode != XMode.X_QUANTIZED else None
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


def _flags(bias: object, residual: object, ragged: object) -> ProductFlag:
    """The flags of what is there."""
    chosen = {ProductFlag.BIAS: bias, ProductFlag.RESIDUAL: residual, ProductFlag.RAGGED_X: ragged}
    return ProductFlag(sum(flag for flag, present in chosen.items() if present))


def use_int8(at: Lowering, weight: Matrix) -> bool:
    """Whether activations become int8 for products with few rows of them."""
    return at.int8 and not weight.format.dense


def use_cooperative(at: Lowering, weight: Matrix) -> bool:
    """Whether matrix units compute a product: not with float32 weights, which may need their precision."""
    return at.cooperative and weight.format.name != "f32" and weight.n_columns % 8 == 0 and weight.n_rows % 4 == 0


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


@dataclass(frozen=True)
class FewProduct:
    """A product of up to MOST_FEW rows of x on matrix units; with two weights ``silu(x @ w0.T) * (x @ w1.T)``.

    ``output`` is left in float16 too.
    """

    x: Tensor
    weights: Sequence[Matrix]
    y: Place
    bias: Place | None = None
    residual: Place | None = None
    output: Tensor | None = None


def least_few(n_columns: int, n_rows: int = 0) -> int:
    """From how many rows of x on matrix units are faster: short products are done before they would be busy."""
    return 5 if n_columns <= 2048 or (n_columns >= 8192 and n_rows <= 2048) else 9


def use_few(at: Lowering, weight: Matrix, n_rows: int, paired: bool = False) -> FewShape | None:
    """How the kernel for some rows of x shares out a product; None: it is not for it."""
    least = least_few(weight.n_columns, weight.n_rows)
    if not least <= n_rows <= MOST_FEW or not use_cooperative(at, weight) or weight.n_columns % BLOCK_COLUMNS:
        return None
    shape = few_shape(at.device, weight.n_rows, weight.n_columns, n_rows, paired)
    return shape if shape and shape.shared_bytes(UNIT) <= at.device.threadgroup_memory_bytes else None


def few_product(at: Lowering, call: FewProduct, shape: FewShape) -> None:
    """A dispatch of shaders/matmul_few.comp."""
    first, last = call.weights[0], call.weights[-1]
    n_rows, paired = at.rows(call.x), len(call.weights) > 1
    fragments_n = -(-n_rows // UNIT)
    vectors = halves(at, call.x, tiled=True)
    left = new_halves(at, call.output, tiled=True) if call.output else None
    flags = _flags(call.bias, call.residual, False) | (ProductFlag.PAIRED if paired else NO_FLAGS)
    of_matrix = shape.fragments_m // 2 if paired else shape.fragments_m
    at.dispatch(
        f"matmul_few.{first.format.name}",
        count=call.x,
        reads={
            "x": vectors,
            "weights": [first.place, last.place],
            "bias": call.bias or vectors,
            "residual": call.residual or vectors,
        },
        writes={"y": call.y, "halves": left or call.y},
        push={"n_rows": first.n_rows, "n_columns": first.n_columns},
        constants=[
            shape.parts_m * shape.parts_k * at.device.subgroup_size,
            *(first.row_blocks, flags | (ProductFlag.HALF_Y if left else NO_FLAGS)),
            *(shape.parts_m, shape.parts_k, shape.fragments_m, fragments_n, shape.k, UNIT),
            *(shape.depth, shape.early),
        ],
        grid=(-(-first.n_rows // (shape.parts_m * of_matrix * UNIT)), 1, 1),
        full_subgroups=True,
        label=f"few {first.format.name} {first.n_rows * len(call.weights)}x{first.n_columns}",
    )


def cooperative_product(
    at: Lowering,
    x: Tensor,
    weight: Matrix,
    y: Place,
    bias: Place | None = None,
    residual: Place | None = None,
    shape: TileShape | None = None,
    routes: Routes | None = None,
) -> None:
    shape = shape or tile_shape(at.device, weight.n_rows, at.rows(x))
    routes = routes or Routes(-(-at.rows(x) // shape.n))
    threads = shape.warps_m * shape.warps_n * at.device.subgroup_size
    flags = _tile_flags(weight, shape.k, bias, residual, routes)
    sizes = [shape.m, shape.n, shape.warps_m, shape.warps_n, shape.k, UNIT]
    constants = [threads, weight.row_blocks, flags, *sizes]
    _tiles(at, "matmul_cooperative", x, halves(at, x), weight, y, bias, residual, routes, shape.m, constants, True)


def tiled_product(
    at: Lowering,
    x: Tensor,
    weight: Matrix,
    y: Place,
    bias: Place | None = None,
    residual: Place | None = None,
    routes: Routes | None = None,
) -> None:
    routes = routes or Routes(-(-at.rows(x) // TILE_VECTORS))
    constants = [weight.row_blocks, _tile_flags(weight, 4, bias, residual, routes)]
    _tiles(at, "matmul", x, at.place(x), weight, y, bias, residual, routes, 64, constants)


def _tile_flags(
    weight: Matrix, columns: int, bias: Place | None, residual: Place | None, routes: Routes
) -> ProductFlag:
    """For a kernel that takes so many columns at a time."""
    return _flags(bias, residual, weight.n_columns % columns) | routes.flags


def _tiles(
    at: Lowering,
    kernel: str,
    x: Tensor,
    vectors: Place,
    weight: Matrix,
    y: Place,
    bias: Place | None,
    residual: Place | None,
    routes: Routes,
    tile_rows: int,
    constants: list[int],
    full_subgroups: bool = False,
) -> None:
    """A dispatch of a kernel for many vectors, a workgroup for each tile; ``vectors`` is where it reads ``x``."""
    at.dispatch(
        f"{kernel}.{weight.format.name}",
        count=x,
        reads={
            "x": vectors,
            "weights": weight.place,
            "bias": bias or vectors,
            "residual": residual or vectors,
            **routes.places(vectors),
        },
        writes={"y": y},
        push={
            "n_rows": weight.n_rows,
            "n_columns": weight.n_columns,
            "n_used": routes.n_used,
            "n_matrix_rows": weight.n_rows * weight.n_matrices,
        },
        constants=constants,
        grid=(-(-weight.n_rows // tile_rows), routes.n_tiles, routes.n_heads),
        full_subgroups=full_subgroups,
        label=f"matmul {weight.format.name} {weight.n_rows}x{weight.n_columns}",
    )


def _three(places: Sequence[Place]) -> list[Place]:
    """Kernels have three of each; the last is repeated."""
    return [*places, *[places[-1]] * (3 - len(places))]


def _fold(count: int, most: int) -> tuple[int, int]:
    """Two dimensions of a grid, for at least so many."""
    z = -(-count // most)
    return -(-count // z), z
