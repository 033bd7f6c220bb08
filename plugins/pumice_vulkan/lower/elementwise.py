"""Rules for operations element by element."""

from __future__ import annotations

from pumice.plugin import ELEMENTWISE, Limits, Node, broadcast_walk
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
        push={"row_width": at.width(x), **walk._asdict()},
        grid=at.grid(-(-n_values // LOCAL)),
    )


def _broadcasts(node: Node, limits: Limits) -> bool:
    return broadcast_walk(*node.operands()) is not None


def _reshape(at: Lowering, node: Node) -> None:
    """The plan gives a reshape the place of what it reshapes."""
    at.reshaped(node.output, node.inputs["x"])


RULES = {
    **{name: Rule(_unary) for name, each in ELEMENTWISE.items() if len(each.operands) == 1},
    **{name: Rule(_binary, _broadcasts) for name, each in ELEMENTWISE.items() if len(each.operands) == 2},
    "reshape": Rule(_reshape),
}
