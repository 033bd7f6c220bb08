"""Products with float matrices, in their layout in the file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pumice.plugin import GGMLType, Tensor, Weight
from pumice_cpu.formats import COLUMNS, PANEL_COLUMNS, PANEL_ROWS, PANEL_TOKENS, ROWS
from pumice_cpu.isa import current
from pumice_cpu.lower.rule import Argument, Lowering
from pumice_cpu.lower.tiles import multiply_tiles, round_to_tiles

TYPES = {GGMLType[name]: name.lower() for name in ("F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64")}

MOST_PANELS = 4  # that a thread multiplies at once: half of the second-level cache of processors with AVX-512
SMALL = 1 << 18  # numbers of a matrix that is multiplied in the same order for any number of rows


def linear_float(lowering: Lowering, x: Tensor, weight: Weight, bias: Tensor | None, y: Tensor) -> None:
    n_rows, n_columns = int(weight.shape[0]), int(x.shape[-1])
    arguments: dict[str, Argument] = {"weights": weight.data, "bias": 0 if bias is None else bias}
    arguments |= {"n_rows": n_rows, "n_columns": n_columns}
    kind = TYPES[weight.type]
    if n_rows * n_columns > SMALL and lowering.takes_one(x):
        lowering.add_product(f"linear_float.matvec:{kind}", of=x, into=y, x=x, **arguments)
    else:
        most = MOST_PANELS if current().tokens > 4 else 1
        scratch = lowering.scratch_memory("panels", lowering.pool.n_threads * most * 4 * PANEL_ROWS * PANEL_COLUMNS)
        in_groups, count, many = _groups(kind), lowering.count_address(x), 0
        in_tiles = kind == "bf16" and n_columns % COLUMNS == 0 and (bias is None or isinstance(bias, Weight))
        if lowering.memory.tiles and in_tiles and not lowering.is_single(x):
            count, many = lowering.split_count(x)
        n_before = len(lowering.table)
        groups = _grouped(lowering, x, "bf16.group" if in_groups == "pairs" else "linear_float.group", count)
        if many:
            round_to_tiles(lowering, x, many, alongside=len(lowering.table) > n_before)
        kernel = f"linear_float.matmul:{kind}:{in_groups}"
        lowering.add_product(kernel, of=x, into=y, count=count, x=groups, scratch=scratch, most=most, **arguments)
        if many:
            _multiply_tiles(lowering, x, weight, bias, y, many)


def _multiply_tiles(lowering: Lowering, x: Tensor, weight: Weight, bias: Tensor | None, y: Tensor, count: int) -> None:
    matrix: dict[str, Argument] = {
        "weights": weight.data,
        "bias": padded_bias(bias),
        "n_rows": int(weight.shape[0]),
        "n_blocks": int(x.shape[-1]) // COLUMNS,
        **dict.fromkeys(("scales", "table", "scale_stride"), 0),
    }
    multiply_tiles(lowering, x, y, "bf16", count, matrix)


def padded_bias(bias: Tensor | None) -> Argument:
    """Return a bias, padded to whole tiles; 0 without a bias."""
    if not isinstance(bias, Weight):
        return 0
    values = bias.dequantize()
    return np.concatenate([values, np.zeros(-len(values) % ROWS, np.float32)])


def kernels() -> Iterator[str]:
    yield from (f"linear_float.matvec:{kind}" for kind in TYPES.values())
    yield from (f"linear_float.matmul:{kind}:{_groups(kind)}" for kind in TYPES.values())


def _groups(kind: str) -> str:
    """Return the grouping of activations for a type (kernels/linear_float.py)."""
    return "pairs" if kind == "bf16" and current().multiplies_bf16 else "single"


def _grouped(lowering: Lowering, x: Tensor, kernel: str, count: int) -> int:
    """Group the rows of ``x``. The latest grouped activation is reused: q, k and v share it.

    ``count``: address of the number of rows.
    """
    n_columns = int(x.shape[-1])
    n_rows = lowering.max_rows + PANEL_TOKENS
    groups = lowering.scratch_memory("groups", 4 * n_rows * n_columns)
    key = x, kernel, count if isinstance(x.shape[0], str) else 0
    if lowering.grouped != key:
        lowering.add(kernel, count=count, x=x, y=groups, width=n_columns)
        lowering.grouped = key
    return groups
