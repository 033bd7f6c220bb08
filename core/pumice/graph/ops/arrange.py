"""Choosing values and arranging them."""

from __future__ import annotations

from pumice.graph.operation import Result, need, operation
from pumice.graph.shape import Dim, format_shape, row_size
from pumice.graph.tensor import Tensor


@operation
def top_k(x: Tensor, k: int) -> Result:
    """int32 indices ``[..., k]`` of the ``k`` largest of the last axis, largest first, on a tie the lower index."""
    need(0 < k <= int(x.shape[-1]), f"top_k: cannot take {k} of {x}")
    return Result((*x.shape[:-1], k), "i32")


@operation
def gather(x: Tensor, ids: Tensor) -> Result:
    """``x [..., n]`` at int32 ``ids [..., k]`` of each row: ``[..., k]``."""
    return Result(ids.shape)


@operation
def sum_(x: Tensor, axis: int, keepdims: bool = False) -> Result:
    """Sum over one axis, counted from the end (negative)."""
    need(-len(x.shape) < axis < 0, f"sum: axis {axis} of {x} must count from the end, after the tokens")
    shape = list(x.shape)
    shape[axis : axis + 1 or None] = [1] if keepdims else []
    return Result(tuple(shape))


@operation
def reshape(x: Tensor, shape: tuple[Dim, ...]) -> Result:
    """Reinterpret the values in another shape without a copy. The token dimension stays first."""
    same = shape[0] == x.shape[0] and row_size(shape) == row_size(x.shape)
    need(same, f"reshape: {x} does not have the size of {format_shape(shape)}")
    return Result(shape, x.dtype)


@operation
def slice_(x: Tensor, start: int, stop: int) -> Result:
    """Values ``start`` to ``stop`` of the last axis."""
    need(0 <= start < stop <= int(x.shape[-1]), f"slice: {start}:{stop} is outside {x}")
    return Result((*x.shape[:-1], stop - start), x.dtype)


@operation
def concat(x: Tensor, y: Tensor) -> Result:
    """``x`` and ``y`` side by side on the last axis; ``y`` broadcasts on the axis before it."""
    pairs = zip(x.shape[:-1], y.shape[:-1], strict=False)
    need(len(x.shape) == len(y.shape) and all(b in (a, 1) for a, b in pairs), f"concat: {y} does not fit beside {x}")
    return Result((*x.shape[:-1], int(x.shape[-1]) + int(y.shape[-1])))
