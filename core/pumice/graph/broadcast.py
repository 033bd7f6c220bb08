"""Describe how a second operand broadcasts to the first: as three nested loops for kernels that walk along both."""

from __future__ import annotations

from typing import NamedTuple

from pumice.graph.tensor import Tensor


class Walk(NamedTuple):
    """The loops over a row of x, ``[n_a, n_b, width]``.

    The value ``(row, a, b, i)`` of x pairs with y's at ``row * y_row + a * y_a + b * y_b + i * y_value``, where
    ``y_value`` is 0 or 1.
    """

    n_a: int
    n_b: int
    width: int
    y_row: int
    y_a: int
    y_b: int
    y_value: int


def broadcast_walk(x: Tensor, y: Tensor) -> Walk | None:
    """Return the loops for ``y``, which broadcasts to ``x``; None if they are more than three."""
    sizes = [int(dim) for dim in x.shape[1:]]
    y_sizes = [1] * (len(x.shape) - len(y.shape)) + [dim if isinstance(dim, int) else 0 for dim in y.shape]
    strides, stride = [0] * len(sizes), 1
    for axis in reversed(range(len(sizes))):
        if y_sizes[axis + 1] != 1:
            strides[axis] = stride
            stride *= y_sizes[axis + 1]
    loops: list[tuple[int, int]] = []
    for size, step in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if loops and loops[-1][1] == step * size:  # merges with the previous axis
            loops[-1] = (loops[-1][0] * size, step)
        else:
            loops.append((size, step))
    if len(loops) > 3:
        return None
    (n_a, y_a), (n_b, y_b), (width, y_value) = [(1, 0)] * (3 - len(loops)) + loops
    return Walk(n_a, n_b, width, stride if y_sizes[0] == 0 else 0, y_a, y_b, y_value)
