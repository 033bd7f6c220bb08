"""Rules for operations element by element."""

from __future__ import annotations

from pumice.plugin import Node
from pumice_cpu.lower.rule import Lowering, Rule, row_width


def _same_shape(node: Node) -> bool:
    x, y = node.operands()
    return x.shape == y.shape


def _unary(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    at.add(
        f"elementwise.unary:{node.op}",
        count=at.count(x),
        x=at.address(x),
        y=at.address(node.output),
        width=row_width(x),
    )


def _binary(at: Lowering, node: Node) -> None:
    x, y = node.operands()
    at.add(
        f"elementwise.binary:{node.op}",
        count=at.count(x),
        x=at.address(x),
        y=at.address(y),
        z=at.address(node.output),
        width=row_width(x),
    )


def _nothing(at: Lowering, node: Node) -> None:
    """The plan gives a reshape the place of what it reshapes."""


RULES = {
    "silu": Rule(_unary),
    "add": Rule(_binary, _same_shape),
    "mul": Rule(_binary, _same_shape),
    "reshape": Rule(_nothing),
}
