"""Rules for element-wise operations."""

from __future__ import annotations

from collections.abc import Iterator

from pumice.plugin.unstable import ELEMENTWISE, Limits, Node, broadcast_walk, row_size
from pumice_cpu.lower.rule import Lowering, Rule
from pumice_cpu.runtime import float_bits


def _unary(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    p, q = (*(float_bits(value) for value in node.attrs.values()), 0, 0)[:2]
    lowering.add(f"elementwise.unary:{node.op}", x, x=x, y=node.output, width=row_size(x.shape), p=p, q=q)


def _binary(lowering: Lowering, node: Node) -> None:
    x, y = node.operands()
    if x.shape == y.shape:
        lowering.add(f"elementwise.binary:{node.op}", x, x=x, y=y, z=node.output, width=row_size(x.shape))
        return
    walk = broadcast_walk(x, y)
    assert walk is not None
    lowering.add(f"elementwise.broadcast:{node.op}", x, x=x, y=y, z=node.output, **walk._asdict())


def _broadcasts(node: Node, limits: Limits) -> bool:
    x, y = node.operands()
    return x.shape == y.shape or broadcast_walk(x, y) is not None


def _nothing(lowering: Lowering, node: Node) -> None:
    """A reshape needs no kernel: the memory plan places it where its operand is."""


_UNARY = [name for name, operation in ELEMENTWISE.items() if len(operation.operands) == 1]
_BINARY = [name for name, operation in ELEMENTWISE.items() if len(operation.operands) == 2]


def kernels() -> Iterator[str]:
    yield from (f"elementwise.unary:{name}" for name in _UNARY)
    yield from (f"elementwise.{kind}:{name}" for kind in ("binary", "broadcast") for name in _BINARY)


RULES = {
    **{name: Rule(_unary) for name in _UNARY},
    **{name: Rule(_binary, _broadcasts) for name in _BINARY},
    "reshape": Rule(_nothing),
}
