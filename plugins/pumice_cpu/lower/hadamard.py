"""Rules for products with Hadamard matrices."""

from __future__ import annotations

from collections.abc import Iterator

from pumice.plugin.unstable import Limits, Node, row_size
from pumice_cpu.lower.rule import Lowering, Rule

SMALLEST = 32  # values of two vectors
COMMON_SIZES = (32, 64)


def _claims(node: Node, limits: Limits) -> bool:
    return int(node.attrs["size"]) >= SMALLEST


def _hadamard(lowering: Lowering, node: Node) -> None:
    (x,), size = node.operands(), int(node.attrs["size"])
    lowering.add_mapped(f"hadamard.transform:{size}", x, node.output, n_rows=row_size(x.shape) // size)


def kernels() -> Iterator[str]:
    yield from (f"hadamard.transform:{size}" for size in COMMON_SIZES)


RULES = {"hadamard": Rule(_hadamard, _claims)}
