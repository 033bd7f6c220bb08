"""Rules for operations element by element."""

from __future__ import annotations

from pumice.plugin import ELEMENTWISE, Limits, Node, Tensor, row_size
from pumice_cpu.lower.rule import Lowering, Rule
from pumice_cpu.runtime import float_bits


def _unary(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    p, q = (*(float_bits(value) for value in node.attrs.values()), 0, 0)[:2]
    at.add(
        f"elementwise.unary:{node.op}",
        count=at.count_address(x),
        x=at.address(x),
        y=at.address(node.output),
        width=row_size(x.shape),
        p=p,
        q=q,
    )


def _binary(at: Lowering, node: Node) -> None:
    x, y = node.operands()
    places = {"count": at.count_address(x), "x": at.address(x), "y": at.address(y), "z": at.address(node.output)}
    if x.shape == y.shape:
        at.add(f"elementwise.binary:{node.op}", **places, width=row_size(x.shape))
        return
    walk = broadcast_walk(x, y)
    assert walk is not None
    at.add(f"elementwise.broadcast:{node.op}", **places, **walk)


def _broadcasts(node: Node, limits: Limits) -> bool:
    x, y = node.operands()
    return x.shape == y.shape or broadcast_walk(x, y) is not None


def broadcast_walk(x: Tensor, y: Tensor) -> dict[str, int] | None:
    """Sizes of x beyond the tokens, and how far y goes in each of them; None if they are too many to walk."""
    sizes = [1, *(int(dim) for dim in x.shape[1:])]  # the number of tokens does not matter
    y_sizes = [1] * (len(x.shape) - len(y.shape)) + [dim if isinstance(dim, int) else 0 for dim in y.shape]
    strides, stride = [0] * len(sizes), 1
    for axis in reversed(range(1, len(sizes))):
        if y_sizes[axis] != 1:
            strides[axis] = stride
            stride *= y_sizes[axis]
    strides[0] = stride if y_sizes[0] == 0 else 0
    axes = [(size, step) for size, step in zip(sizes[1:], strides[1:], strict=True) if size != 1]
    merged: list[tuple[int, int]] = []
    for size, step in axes:
        if merged and merged[-1][1] == step * size:  # goes on as one axis
            merged[-1] = (merged[-1][0] * size, step)
        else:
            merged.append((size, step))
    if not merged or merged[-1][1] > 1:
        merged.append((1, 0))
    if len(merged) > 3:
        return None
    (n_a, y_a), (n_b, y_b), (width, y_value) = [(1, 0)] * (3 - len(merged)) + merged
    return {
        "n_a": n_a,
        "n_b": n_b,
        "width": width,
        "y_token": strides[0],
        "y_a": y_a,
        "y_b": y_b,
        "y_value": y_value,
    }


def _nothing(at: Lowering, node: Node) -> None:
    """The plan gives a reshape the place of what it reshapes."""


RULES = {
    **{name: Rule(_unary) for name, each in ELEMENTWISE.items() if len(each.operands) == 1},
    **{name: Rule(_binary, _broadcasts) for name, each in ELEMENTWISE.items() if len(each.operands) == 2},
    "reshape": Rule(_nothing),
}
