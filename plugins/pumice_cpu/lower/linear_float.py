"""Products with float matrices, which are read as they are in the file."""

from __future__ import annotations

from collections.abc import Iterator

from pumice.plugin import GGMLType, Tensor, Weight
from pumice_cpu.formats import PANEL_COLUMNS, PANEL_ROWS, PANEL_TOKENS
from pumice_cpu.isa import current
from pumice_cpu.lower.rule import Lowering

TYPES = {GGMLType[name]: name.lower() for name in ("F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64")}


def linear_float(at: Lowering, x: Tensor, weight: Weight, bias: Tensor | None, y: Tensor) -> None:
    n_rows, n_columns = int(weight.shape[0]), int(x.shape[-1])
    arguments = {
        "weights": at.hold(weight.data),
        "bias": 0 if bias is None else at.address(bias),
        "n_rows": n_rows,
        "n_columns": n_columns,
    }
    kind = TYPES[weight.type]
    if at.is_single(x) and not at.invariant:
        at.add_product(f"linear_float.matvec:{kind}", of=x, into=y, x=at.address(x), **arguments)
    else:
        scratch = at.scratch_memory("panels", at.pool.n_threads * 4 * PANEL_ROWS * PANEL_COLUMNS)
        in_groups = _groups(kind)
        groups = _grouped(at, x, "bf16.group" if in_groups == "pairs" else "linear_float.group")
        at.add_product(
            f"linear_float.matmul:{kind}:{in_groups}",
            of=x,
            into=y,
            count=at.count_address(x),
            x=groups,
            scratch=scratch,
            **arguments,
        )


def kernels() -> Iterator[str]:
    yield from (f"linear_float.matvec:{kind}" for kind in TYPES.values())
    yield from (f"linear_float.matmul:{kind}:{_groups(kind)}" for kind in TYPES.values())


def _groups(kind: str) -> str:
    """How activations lie in groups (kernels/linear_float.py)."""
    return "pairs" if kind == "bf16" and current().multiplies_bf16 else "single"


def _grouped(at: Lowering, x: Tensor, kernel: str) -> int:
    """The rows of ``x`` in groups. What was grouped last is used again: q, k and v share it."""
    n_columns = int(x.shape[-1])
    n_rows = at.max_rows + PANEL_TOKENS
    groups = at.scratch_memory("groups", 4 * n_rows * n_columns)
    if at.grouped != (x, kernel):
        at.add(kernel, count=at.count_address(x), x=at.address(x), y=groups, width=n_columns)
        at.grouped = (x, kernel)
    return groups
