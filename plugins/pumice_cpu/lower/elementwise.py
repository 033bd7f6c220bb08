"""Rules for operations element by element."""

from __future__ import annotations

from collections.abc import Iterator

from pumice.plugin import ELEMENTWISE, Limits, Node, broadcast_walk, row_size
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
    at.add(f"elementwise.broadcast:{node.op}", **places, **walk._asdict())


def _broadcasts(node: Node, limits: Limits) -> bool:
    x, y = node.operands()
    return x.shape == y.shape or broadcast_walk(x, y) is not None


def _nothing(at: Lowering, node: Node) -> None:
    """The plan gives a reshape the place of what it reshapes."""


_UNARY = [name for name, each in ELEMENTWISE.items() if len(each.operands) == 1]
_BINARY = [name for name, each in ELEMENTWISE.items() if len(each.operands) == 2]


def kernels() -> Iterator[str]:
    yield from (f"elementwise.unary:{name}" for name in _UNARY)
    yield from (f"elementwise.{kind}:{name}" for kind in ("binary", "broadcast") for name in _BINARY)


RULES = {
    **{name: Rule(_unary) for name in _UNARY},
    **{name: Rule(_binary, _broadcasts) for name in _BINARY},
    "reshape": Rule(_nothing),
}
