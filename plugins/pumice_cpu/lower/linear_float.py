"""Products with float matrices, in their layout in the file."""

from __future__ import annotations

from collections.abc import Iterator

from pumice.plugin import GGMLType, Tensor, Weight
from pumice_cpu.formats import PANEL_COLUMNS, PANEL_ROWS, PANEL_TOKENS
from pumice_cpu.isa import current
from pumice_cpu.lower.rule import Lowering

TYPES = {GGMLType[name]: name.lower() for name in ("F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64")}

SMALL = 1 << 18  # numbers of a matrix that is multiplied in the same order for any number of rows


def linear_float(lowering: Lowering, x: Tensor, weight: Weight, bias: Tensor | None, y: Tensor) -> None:
    n_rows, n_columns = int(weight.shape[0]), int(x.shape[-1])
    arguments = {
        "weights": lowering.hold(weight.data),
        "bias": 0 if bias is None else lowering.address(bias),
        "n_rows": n_rows,
        "n_columns": n_columns,
    }
    kind = TYPES[weight.type]
    if n_rows * n_columns > SMALL and lowering.takes_one(x):
        lowering.add_product(f"linear_float.matvec:{kind}", of=x, into=y, x=lowering.address(x), **arguments)
    else:
        scratch = lowering.scratch_memory("panels", lowering.pool.n_threads * 4 * PANEL_ROWS * PANEL_COLUMNS)
        in_groups = _groups(kind)
        groups = _grouped(lowering, x, "bf16.group" if in_groups == "pairs" else "linear_float.group")
        lowering.add_product(
            f"linear_float.matmul:{kind}:{in_groups}",
            of=x,
            into=y,
            count=lowering.count_address(x),
            x=groups,
            scratch=scratch,
            **arguments,
        )


def kernels() -> Iterator[str]:
    yield from (f"linear_float.matvec:{kind}" for kind in TYPES.values())
    yield from (f"linear_float.matmul:{kind}:{_groups(kind)}" for kind in TYPES.values())


def _groups(kind: str) -> str:
    """Return the grouping of activations for a type (kernels/linear_float.py)."""
    return "pairs" if kind == "bf16" and current().multiplies_bf16 else "single"


def _grouped(lowering: Lowering, x: Tensor, kernel: str) -> int:
    """Group the rows of ``x``. The latest grouped activation is reused: q, k and v share it."""
    n_columns = int(x.shape[-1])
    n_rows = lowering.max_rows + PANEL_TOKENS
    groups = lowering.scratch_memory("groups", 4 * n_rows * n_columns)
    if lowering.grouped != (x, kernel):
        lowering.add(kernel, count=lowering.count_address(x), x=lowering.address(x), y=groups, width=n_columns)
        lowering.grouped = (x, kernel)
    return groups
