"""Rules for operations element by element."""

from __future__ import annotations

from pumice.plugin import ELEMENTWISE, Limits, Node, Tensor
from pumice_vulkan.lower.rule import Lowering, Rule

LOCAL = 256


def _unary(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    p, q = (*(float(value) for value in node.attrs.values()), 0.0, 0.0)[:2]
    at.dispatch(
        f"unary.{node.op}",
        count=x,
        reads={"x": at.place(x)},
        writes={"y": at.place(node.output)},
        push={"width": at.width(x), "p": p, "q": q},
        grid=at.grid(-(-at.rows(x) * at.width(x) // LOCAL)),
    )


def _binary(at: Lowering, node: Node) -> None:
    x, y = node.operands()
    walk = broadcast_walk(x, y)
    assert walk is not None
    n_values = at.rows(x) * at.width(x)
    at.dispatch(
        f"binary.{node.op}",
        count=x,
        reads={"x": at.place(x), "y": at.place(y)},
        writes={"z": at.place(node.output)},
        push={"row_width": at.width(x), **walk},
        grid=at.grid(-(-n_values // LOCAL)),
    )


def _broadcasts(node: Node, limits: Limits) -> bool:
    return broadcast_walk(*node.operands()) is not None


def broadcast_walk(x: Tensor, y: Tensor) -> dict[str, int] | None:
    """How y goes along x, as ``shaders/binary.comp`` wants to know it, or None if x has too many axes to walk.

    A row of x is ``[n_a, n_b, width]``; beside its value ``(row, a, b, i)`` lies y's
    ``row * y_row + a * y_a + b * y_b + i * y_value``.
    """
    sizes = [int(dim) for dim in x.shape[1:]]
    y_sizes = [1] * (len(x.shape) - len(y.shape)) + [dim if isinstance(dim, int) else 0 for dim in y.shape]
    strides, stride = [0] * len(sizes), 1
    for axis in reversed(range(len(sizes))):
        if y_sizes[axis + 1] != 1:
            strides[axis] = stride
            stride *= y_sizes[axis + 1]
    merged: list[tuple[int, int]] = []
    for size, step in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1] == step * size:  # goes on as one axis
            merged[-1] = (merged[-1][0] * size, step)
        else:
            merged.append((size, step))
    if len(merged) > 3:
        return None
    (_, y_a), (n_b, y_b), (width, y_value) = [(1, 0)] * (3 - len(merged)) + merged
    y_row = stride if y_sizes[0] == 0 else 0
    return {"n_b": n_b, "width": width, "y_row": y_row, "y_a": y_a, "y_b": y_b, "y_value": y_value}


def _nothing(at: Lowering, node: Node) -> None:
    """The plan gives a reshape the place of what it reshapes."""


RULES = {
    **{name: Rule(_unary) for name, each in ELEMENTWISE.items() if len(each.operands) == 1},
    **{name: Rule(_binary, _broadcasts) for name, each in ELEMENTWISE.items() if len(each.operands) == 2},
    "reshape": Rule(_nothing),
}
